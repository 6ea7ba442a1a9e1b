"""Results for people: tables of measures, pictures of bags, files of predictions and annotations."""

from bagwise.report.media import draw_bag
from bagwise.report.plots import heat_map, plot_bags, plot_instance_scores
from bagwise.report.tables import comparison_table, measure_title

__all__ = ["comparison_table", "draw_bag", "heat_map", "measure_title", "plot_bags", "plot_instance_scores"]
