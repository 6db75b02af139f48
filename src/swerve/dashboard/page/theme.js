"use strict";
// Runs before the page is drawn, so that it does not flash; `page.js` has the button.
try {
  const chosen = localStorage.getItem("swerve-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // without storage: the system's choice
}
