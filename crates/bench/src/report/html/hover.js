// Shows the values at the pointer at once, and on touch; without this script a browser shows them as titles.
const tip = document.body.appendChild(Object.assign(document.createElement('div'), { id: 'tip' }));
for (const title of document.querySelectorAll('.hit title')) {
  title.parentNode.dataset.tip = title.textContent;
  title.remove();
}
addEventListener('pointermove', show);
addEventListener('pointerdown', show);
function show(event) {
  const hit = event.target.closest?.('.hit');
  tip.style.display = hit ? 'block' : 'none';
  if (!hit) return;
  tip.textContent = hit.dataset.tip;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6);
  const below = event.clientY + 18, above = event.clientY - tip.offsetHeight - 12;
  tip.style.left = Math.max(left, 6) + 'px';
  tip.style.top = (below + tip.offsetHeight > innerHeight ? above : below) + 'px';
}
