"""What several methods share; one module for each thing."""
