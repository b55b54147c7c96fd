// The headline chart: a mark shows its value, and an arm can be hidden. Without scripts the chart is complete.
for (const figure of document.querySelectorAll(".answer figure")) {
  const parts = [...figure.querySelectorAll("[data-arm]")];
  const controls = document.createElement("p");
  controls.className = "controls soft";
  for (const arm of new Set(parts.map((part) => part.dataset.arm))) {
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      for (const part of parts) if (part.dataset.arm === arm) part.style.display = box.checked ? "" : "none";
    });
    const label = document.createElement("label");
    label.append(box, ` ${arm}`);
    controls.append(label);
  }
  const value = document.createElement("output");
  value.textContent = "Point at a mark to read its value.";
  controls.append(value);
  for (const title of figure.querySelectorAll("[data-arm] > title")) {
    for (const event of ["pointerenter", "click"]) {
      title.parentNode.addEventListener(event, () => { value.textContent = title.textContent; });
    }
  }
  figure.querySelector(".panel").after(controls);
}
