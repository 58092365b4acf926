const box = document.getElementById("find"), list = document.getElementById("found");
box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  list.textContent = "";
  if (!words.length) return;
  for (const one of TABLES.filter((each) => words.every((word) => each.w.includes(word))).slice(0, 50)) {
    const link = document.createElement("a");
    link.href = UP + "tables/" + encodeURIComponent(one.f);
    link.textContent = one.t;
    list.appendChild(document.createElement("li")).appendChild(link);
  }
  if (!list.firstChild) list.appendChild(document.createElement("li")).textContent = "no table has all these words";
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) { event.preventDefault(); box.focus(); }
});
