"""ORed logistic regression: the label set of a bag is the union of its instances' labels."""
