// Mathematics as MathML, which browsers draw themselves. Loaded with the first formula.
import temml from 'temml';

export function renderMath(spot: HTMLElement): void {
  const source = spot.textContent ?? '';
  spot.dataset.done = 'yes';
  const target = document.createElement('span');
  try {
    temml.render(source, target, {
      displayMode: spot.classList.contains('block'),
      throwOnError: true,
      trust: false,
      maxSize: [20, 20],
      maxExpand: 200,
    });
  } catch {
    spot.classList.add('wrong');
    return;
  }
  // For those who copy or hear it.
  target.querySelector('math')?.setAttribute('alttext', source);
  if (spot.classList.contains('block')) {
    target.tabIndex = 0;
    target.setAttribute('role', 'region');
    target.setAttribute('aria-label', 'Formula');
    target.className = 'scroll';
  }
  spot.replaceChildren(target);
}
