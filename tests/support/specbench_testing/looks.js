// What a test asks of a page that it looks at: one object of plain numbers and texts.
(() => {
  const over = (e) => Math.round(e.scrollWidth - e.clientWidth);
  const named = (e) => `${e.tagName.toLowerCase()}.${e.getAttribute("class") || ""} ${e.textContent.trim().slice(0, 40)}`;
  const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => {
    const line = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * line[0] + 0.7152 * line[1] + 0.0722 * line[2];
  };
  const contrast = (one, other) => {
    const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const seen = (e) => e.checkVisibility({ contentVisibilityAuto: true }) && e.getBoundingClientRect().width > 0;
  const own = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const faint = [];
  for (const e of document.querySelectorAll("body *")) {
    if (!own(e) || !seen(e) || e.closest("style")) continue;
    const svg = e.closest("svg");
    const style = getComputedStyle(e);
    if (svg && style.fill !== getComputedStyle(svg).color) continue; // numbers in coloured cells have an ink of their own
    const found = contrast(rgb(svg ? style.fill : style.color), behind(svg || e));
    if (found < 4.5) faint.push(`${found.toFixed(2)} ${named(e)}`);
  }
  const overlapping = [];
  const outside = [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    const upright = [...svg.querySelectorAll("text")].filter((t) => !/rotate\(-?[1-9]/.test(t.getAttribute("transform") || ""));
    const boxes = upright.map((t) => [t, t.getBoundingClientRect()]);
    boxes.forEach(([text, box], index) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        outside.push(text.textContent);
      for (const [other, beside] of boxes.slice(index + 1)) {
        const across = Math.min(box.right, beside.right) - Math.max(box.left, beside.left);
        const down = Math.min(box.bottom, beside.bottom) - Math.max(box.top, beside.top);
        if (across > 1 && down > 2.5) overlapping.push(`${text.textContent} | ${other.textContent}`);
      }
    });
  }
  return {
    sideways: over(document.documentElement),
    scrolling: [...document.querySelectorAll(".scroll, .panel")].filter((e) => over(e) > 0).map(named),
    tall: [...document.querySelectorAll("tr")].filter((e) => seen(e) && e.getBoundingClientRect().height > 300).map(named),
    faint,
    overlapping,
    outside,
    folded: [...document.querySelectorAll("details table")].filter((e) => !seen(e)).length,
    plots: document.querySelectorAll("svg").length,
    unnamed: [...document.querySelectorAll("svg")].filter((e) => e.getAttribute("role") !== "img" || !e.getAttribute("aria-label")).length,
    ids: (() => {
      const all = [...document.querySelectorAll("[id]")].map((e) => e.id);
      return all.filter((id, at) => all.indexOf(id) !== at);
    })(),
  };
})();
