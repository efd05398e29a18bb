"""Draws Grafana dashboards with uPlot, from what a Prometheus answers to the questions of their panels."""
