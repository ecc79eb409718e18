"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  for (const button of document.querySelectorAll("button[data-toggle]")) {
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(pressed));
      root.classList.toggle(button.dataset.toggle, pressed);
    });
  }

  for (const box of document.querySelectorAll("input[data-variant]")) {
    box.addEventListener("change", () => {
      for (const part of document.querySelectorAll(`[data-part="${box.dataset.variant}"]`)) {
        part.hidden = !box.checked;
      }
    });
  }

  for (const plot of document.querySelectorAll("[data-low]")) {
    const low = Number(plot.dataset.low);
    const high = Number(plot.dataset.high);
    const readout = plot.querySelector(".readout");
    const show = (share) => {
      const clipped = Math.min(1, Math.max(0, share));
      readout.style.left = `${clipped * 100}%`;
      readout.dataset.value = `${(low + clipped * (high - low)).toFixed(2)} ms`;
      readout.dataset.side = clipped > 0.7 ? "left" : "right";
      readout.hidden = false;
      plot.setAttribute("aria-valuenow", (low + clipped * (high - low)).toFixed(2));
    };
    let share = 0.5;
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      show((share = (event.clientX - box.left) / box.width));
    });
    plot.addEventListener("pointerleave", () => { readout.hidden = true; });
    plot.addEventListener("focus", () => show(share));
    plot.addEventListener("blur", () => { readout.hidden = true; });
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.01, ArrowRight: 0.01, Home: -1, End: 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      share = Math.min(1, Math.max(0, share + step));
      show(share);
    });
  }

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const part of opened) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of opened) part.open = false; });
})();
