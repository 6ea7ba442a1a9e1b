"""Topic models of bags: every instance has one label, labels have words."""
