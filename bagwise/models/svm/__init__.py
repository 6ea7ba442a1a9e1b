"""Support vector machines for one label at a time."""
