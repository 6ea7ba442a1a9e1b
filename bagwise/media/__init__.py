"""From raw things to bags with places, and answers back beside the raw things."""
