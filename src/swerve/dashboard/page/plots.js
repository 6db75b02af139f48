// What all charts share: the library, the theme, the time axis.

import { themed } from "./colours.js";
import { byId } from "./dom.js";

export const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, scrollZoom: false };
const TICKS = [
  { dtickrange: [null, 59999], value: "%H:%M:%S" },
  { dtickrange: [60000, 86399999], value: "%H:%M\n%-d %b" },
  { dtickrange: [86400000, null], value: "%-d %b" },
];
/** Pixels that the name of a meaning or a date takes. */
export const LABEL = 76;

let loading;
/** Plotly, from our own server; null when it cannot be had. It is large, and the page is of use without it: it is fetched last. */
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

/** Numbers on the time axis. It has no time zones: a real service's times are moved to the reader's. */
export const axis = (state) => {
  const offset = state.simulated ? 0 : new Date().getTimezoneOffset() * 60000;
  return (seconds) => state.dated(seconds) * 1000 - offset;
};

/** The layout that a chart begins with. */
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
