"use strict";
// Draws each figure of the page into its box, and again in other colours or widths for the night and for paper.
(function () {
  // Width of A4 between margins of 15 mm, which Letter exceeds: 180 mm at 96 dots an inch.
  var PAPER = 680;
  var boxes = Array.prototype.slice.call(document.querySelectorAll(".plot"));
  var touch = window.matchMedia("(pointer: coarse)").matches;
  var night = window.matchMedia("(prefers-color-scheme: dark)");

  function ink() {
    return night.matches ? "#e6e6e6" : "#1c1c1c";
  }
  boxes.forEach(function (box) {
    var figure = JSON.parse(document.getElementById(box.id + "-data").textContent);
    figure.layout.font.color = ink();
    if (touch) {
      // A finger that moves over a figure scrolls the page; a button of the figure lets it zoom.
      figure.layout.dragmode = false;
      figure.config.displayModeBar = true;
    }
    Plotly.newPlot(box, figure.data, figure.layout, figure.config);
  });
  night.addEventListener("change", function () {
    boxes.forEach(function (box) { Plotly.relayout(box, { "font.color": ink() }); });
  });
  window.addEventListener("beforeprint", function () {
    boxes.forEach(function (box) { Plotly.relayout(box, { "font.color": "#000", width: PAPER }); });
  });
  window.addEventListener("afterprint", function () {
    boxes.forEach(function (box) { Plotly.relayout(box, { "font.color": ink(), width: null, autosize: true }); });
  });
})();
