const FONT = '9px "DejaVu Sans", sans-serif';
const GRID = { stroke: "#e8eaec", width: 1 };

function shade(color, opacity) {
  return color + Math.round(opacity * 255).toString(16).padStart(2, "0");
}

function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 16);
}

function stat(place, panel) {
  const bare = { show: false };
  const line = { stroke: panel.color, width: 1, fill: shade(panel.color, 0.15), points: bare };
  new uPlot(
    {
      width: place.parentElement.clientWidth, height: 36, legend: bare, cursor: bare, padding: [2, 0, 0, 0],
      axes: [bare, bare], series: [{}, line],
      scales: { y: { range: (self, low, high) => [Math.min(0, low), Math.max(high, 1e-9) * 1.1] } },
    },
    [times, panel.points], place);
}

function graph(place, panel) {
  const height = place.parentElement.clientHeight - 28 - place.nextElementSibling.offsetHeight - 4;
  const at = panel.ticks.map((tick) => tick[0]);
  // A low graph has no room for all of them.
  const ticks = height < 26 + 14 * at.length ? [panel.ticks[0], panel.ticks[at.length - 1]] : panel.ticks;
  const room = Math.max(...panel.ticks.map((tick) => tick[1].length)) * 7 + 10;
  const lines = panel.series.map((one) => ({
    stroke: one.color, width: panel.line, fill: shade(one.color, panel.fill), points: { show: false },
  }));
  const bands = panel.stacked ? lines.slice(1).map((line, number) => ({ series: [number + 2, number + 1] })) : [];
  const axis = { stroke: "#6e7780", font: FONT, grid: GRID, ticks: { show: false } };
  new uPlot(
    {
      width: place.parentElement.clientWidth - 10, height, legend: { show: false }, cursor: { show: false },
      padding: [8, 18, 0, 0], bands, series: [{}, ...lines],
      scales: { y: { range: [at[0], at[at.length - 1]] } },
      axes: [
        { ...axis, size: 22, space: 60, values: (self, splits) => splits.map(clock) },
        { ...axis, size: room, splits: () => ticks.map((tick) => tick[0]), values: () => ticks.map((tick) => tick[1]) },
      ],
    },
    [times, ...panel.series.map((one) => one.points)], place);
}

for (const place of document.querySelectorAll(".graph")) {
  const panel = panels[place.dataset.panel];
  (panel.kind === "stat" ? stat : graph)(place, panel);
}
