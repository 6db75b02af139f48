// Shared by all charts: the library, the theme, the time axis.

import { themed } from "./colours.js";
import { byId } from "./dom.js";

export const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, scrollZoom: false };
const TICKS = [
  { dtickrange: [null, 59999], value: "%H:%M:%S" },
  { dtickrange: [60000, 86399999], value: "%H:%M\n%-d %b" },
  { dtickrange: [86400000, null], value: "%-d %b" },
];
/** Pixels that the name of a meaning or a date needs. */
export const LABEL = 76;

let loading;
/** Load Plotly from the service; null if that fails. It is large, and the page works without it, so it is loaded last. */
export function plotly() {
  loading ??= new Promise((done) => {
    const script = document.createElement("script");
    script.src = "/page/plotly.js";
    script.onload = () => done(window.Plotly);
    script.onerror = () => done(null);
    document.head.append(script);
  });
  return loading;
}

/** Times for the time axis, which has no time zones: those of a real service are moved to the reader's zone. */
export const axis = (state) => {
  const offset = state.simulated ? 0 : new Date().getTimezoneOffset() * 60000;
  return (seconds) => state.dated(seconds) * 1000 - offset;
};

/** The layout that every chart starts from. */
export function base(id, simulated) {
  const line = themed("--line");
  return {
    autosize: true,
    margin: { l: 52, r: 8, t: 8, b: 28 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 11, color: themed("--soft") },
    showlegend: false,
    hovermode: "x unified",
    hoverlabel: { bgcolor: themed("--card"), bordercolor: line, font: { color: themed("--ink"), size: 12 } },
    dragmode: false,
    xaxis: {
      type: "date",
      tickformatstops: TICKS,
      tickangle: 0,
      nticks: Math.max(2, Math.floor(byId(id).clientWidth / LABEL)),
      fixedrange: true,
      gridcolor: line,
      zeroline: false,
      showline: false,
      hoverformat: simulated ? "%-d %b %Y, %H:%M" : "%H:%M:%S",
    },
    yaxis: { fixedrange: true, gridcolor: line, zeroline: false },
  };
}
