"use strict";
(() => {
  const source = document.getElementById("mix-data");
  const form = document.getElementById("mix-form");
  if (!source || !form) return;
  const mix = JSON.parse(source.textContent);
  const list = document.getElementById("mix-bars");
  const answer = document.getElementById("mix-answer");
  const axis = document.getElementById("mix-axis");
  const draws = 20000;

  const chosen = (index) => {
    const stage = mix.stages[index];
    const wanted = {};
    for (const key of Object.keys(stage.controls)) {
      const owner = key === "variant" ? index : "all";
      const box = form.querySelector(`input[name="mix-${owner}-${CSS.escape(key)}"]:checked`);
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

  const findWhole = (options) => mix.wholes.find((whole) =>
    whole.p50 !== null
    && options.every(({ settings }) =>
      Object.entries(settings).every(([key, value]) => whole.settings[key] === value))
    && Object.keys(whole.settings).every((key) =>
      options.some(({ settings }) => key in settings))) || null;

  const describeQuality = (options) => {
    const index = mix.stages.findIndex((stage) => stage.name === "network");
    if (index < 0) return "";
    const settings = options[index].settings;
    const name = Object.values(settings).find((value) => Object.hasOwn(mix.quality, value));
    if (name === undefined) return "";
    const heads = Object.entries(mix.quality[name]).map(([head, value]) =>
      `${head} ${settings[head] === "off" ? "off" : value}`);
    return heads.length ? `Quality of ${name}: ${heads.join(", ")}.` : "";
  };

  const shipped = mix.stages.map((stage) => stage.options[stage.options.length - 1]);
  const shippedFrame = findWhole(shipped) || compose(shipped);
  const describeGain = (frame) => {
    const gain = shippedFrame.p50 - frame.p50;
    if (Math.abs(gain) < 0.05) return "";
    return `P50 ${Math.abs(gain).toFixed(1)} ms ${gain > 0 ? "shorter" : "longer"} than what ships.`;
  };

  const setAxis = (longest) => {
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((value) => longest / value <= 8) || 2000;
    axis.replaceChildren(...Array.from({ length: Math.floor(longest / step) + 1 }, (_, index) => {
      const tick = document.createElement("span");
      tick.style.left = `${(index * step * 100) / longest}%`;
      tick.textContent = index * step;
      return tick;
    }));
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

  const say = (kind, verdict, ...facts) => {
    const lead = document.createElement("b");
    lead.textContent = `${verdict} `;
    answer.className = `answer ${kind}`;
    answer.replaceChildren(lead, facts.filter(Boolean).join(" "));
  };

  const update = () => {
    const picks = mix.stages.map((stage, index) => chosen(index));
    const missing = mix.stages.filter((stage, index) => picks[index] === null);
    list.classList.toggle("unmeasured", missing.length > 0);
    if (missing.length) {
      const names = missing.map((stage) => stage.name).join(", ");
      say("unknown", `Not measured: this combination of ${names}.`);
      return;
    }
    const measured = findWhole(picks);
    const frame = measured || compose(picks);
    const end = frame.p99 === null ? frame.p50 : frame.p99;
    const longest = Math.max(mix.deadline * 1.12, end * 1.05);
    const scale = 100 / longest;
    setAxis(longest);
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
      say("unknown", `? frame P50 ${ms(frame.p50)} ms; too few runs for a P99.`,
        describeGain(frame), measured ? measured.also : "", describeQuality(picks));
      return;
    }
    const margin = Math.abs(mix.deadline - end).toFixed(1);
    const tail = frame.p99 === null ? "too few runs for a P99" : `P99 ${ms(frame.p99)} ms`;
    say(
      fits ? "fits" : "misses",
      `${fits ? "✓ fits" : "✗ too long"}: frame P50 ${ms(frame.p50)} ms, ${tail}, `
        + `${margin} ms ${fits ? "below" : "over"} ${mix.deadline} ms.`,
      describeGain(frame),
      measured
        ? `Measured as a whole (${measured.text}).`
        : "Composed of stages that were measured apart, as if they were independent: no verdict.",
      measured ? measured.also : "",
      describeQuality(picks),
    );
  };

  form.addEventListener("change", update);
  update();
})();
