// Narrows the resource tree to what is typed. Without it the page only lacks the box.
(() => {
  const box = document.getElementById("filter");
  if (!box) return;
  const shown = document.getElementById("shown");
  const items = [...document.querySelectorAll("#tree li")];
  box.closest("p").hidden = false;
  box.addEventListener("input", () => {
    const wanted = box.value.trim().toLowerCase();
    let hits = 0;
    for (const item of items) {
      const leaf = item.classList.contains("leaf");
      const hit = !wanted || item.textContent.toLowerCase().includes(wanted);
      item.hidden = !hit;
      if (leaf && hit) hits += 1;
      const group = leaf ? null : item.querySelector("details");
      if (group && wanted && hit) group.open = true;
    }
    shown.textContent = wanted ? `${hits} shown` : "";
  });
})();
