"use strict";
(() => {
  const source = document.getElementById("mix-data");
  const form = document.getElementById("mix-form");
  if (!source || !form) return;
  const mix = JSON.parse(source.textContent);
  const list = document.getElementById("mix-bars");
  const answer = document.getElementById("mix-answer");
  const draws = 20000;

  const chosen = (index) => {
    const stage = mix.stages[index];
    const wanted = {};
    for (const key of Object.keys(stage.controls)) {
      const box = form.querySelector(`input[name="mix-${index}-${CSS.escape(key)}"]:checked`);
      if (box) wanted[key] = box.value;
    }
    return stage.options.find((option) =>
      Object.entries(wanted).every(([key, value]) => option.settings[key] === value)) || null;
  };

  // A small fixed generator (Park and Miller 1988), so that the same choice gives the same figure.
  const generator = (seed) => () => (seed = (seed * 48271) % 2147483647) / 2147483647;

  const compose = (options) => {
    const next = generator(20240101);
    const sums = new Float64Array(draws);
    for (const option of options) {
      const values = option.quantiles;
      for (let i = 0; i < draws; i++) sums[i] += values[Math.floor(next() * values.length)];
    }
    sums.sort();
    const p50 = sums[Math.ceil(draws * 0.5) - 1];
    const known = options.every((option) => option.p99 !== null);
    return { p50, p99: known ? sums[Math.ceil(draws * 0.99) - 1] : null };
  };

  const oneVariant = (options) => {
    const names = new Set(options.map((option) => option.settings.variant));
    const name = names.size === 1 ? [...names][0] : undefined;
    const frame = name === undefined ? undefined : mix.frames[name];
    return frame && frame.p50 !== null && frame.p99 !== null ? { name, ...frame } : null;
  };

  const ms = (value) => (value === null || value === undefined ? "–" : value.toFixed(1));

  const setRow = (row, start, option, budget, scale) => {
    const [bar, tail, mark] = [".bar", ".tail", ".budget"].map((name) => row.querySelector(name));
    const p99 = option.p99 === null ? option.p50 : option.p99;
    bar.style.left = `${start * scale}%`;
    bar.style.width = `${option.p50 * scale}%`;
    tail.style.left = `${(start + option.p50) * scale}%`;
    tail.style.width = `${Math.max(0, p99 - option.p50) * scale}%`;
    if (mark) mark.style.left = `${Math.min(100, (start + budget) * scale)}%`;
    const over = budget && option.p99 !== null && option.p99 > budget;
    const limit = budget ? ` <span class="limit${over ? " over" : ""}">of ${budget}</span>` : "";
    row.querySelector(".numbers").innerHTML = `${ms(option.p50)} / ${ms(option.p99)}${limit} ms`;
  };

  const update = () => {
    const picks = mix.stages.map((stage, index) => chosen(index));
    const missing = mix.stages.filter((stage, index) => picks[index] === null);
    list.classList.toggle("unmeasured", missing.length > 0);
    if (missing.length) {
      answer.className = "answer unknown";
      answer.textContent = `Not measured: this combination of ${missing.map((s) => s.name).join(", ")}.`;
      return;
    }
    const measured = oneVariant(picks);
    const frame = measured || compose(picks);
    const end = frame.p99 === null ? frame.p50 : frame.p99;
    const longest = Math.max(mix.deadline * 1.12, end * 1.05);
    const scale = 100 / longest;
    const rows = [...list.children];
    let start = 0;
    picks.forEach((option, index) => {
      setRow(rows[index], start, option, mix.stages[index].budget, scale);
      start += option.p50;
    });
    setRow(rows[rows.length - 1], 0, frame, null, scale);
    for (const line of list.querySelectorAll(".line")) line.style.left = `${mix.deadline * scale}%`;
    const fits = end <= mix.deadline;
    if (fits && frame.p99 === null) {
      answer.className = "answer unknown";
      answer.textContent = `? frame P50 ${ms(frame.p50)} ms; too few runs of a stage for a P99.`;
      return;
    }
    const margin = Math.abs(mix.deadline - end).toFixed(1);
    answer.className = `answer ${fits ? "fits" : "misses"}`;
    answer.textContent = `${fits ? "✓ fits" : "✗ too long"}: frame P50 ${ms(frame.p50)} ms, P99 `
      + `${ms(frame.p99)} ms, ${margin} ms ${fits ? "below" : "over"} ${mix.deadline} ms. `
      + (measured
        ? `Measured as a whole (${measured.name}).`
        : "Composed of stages that were measured apart, as if they were independent: no verdict.");
  };

  form.addEventListener("change", update);
  update();
})();
