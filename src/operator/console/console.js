// Runs in the browser: shows the progress of a run as it happens, and gives the focus to what is wrong with a form.
// Without it, the pages show the same, and load again while a command runs.

document.querySelector('[data-focus]')?.focus();

const region = document.querySelector('[data-events]:not([data-ended])');
if (region) follow(region, document.querySelector('#run-status'));

/** Replaces the content of a region with each event. The status, which is read out, changes at most every 5 s. */
function follow(region, status) {
  const source = new EventSource(region.dataset.events);
  let spokenAt = 0;
  source.addEventListener('run', ({ data }) => {
    const { status: text, html, isEnded } = JSON.parse(data);
    const { id } = document.activeElement ?? {};
    region.innerHTML = html;
    if (id && document.activeElement === document.body) (document.getElementById(id) ?? status).focus();
    if (isEnded || Date.now() - spokenAt > 5_000) {
      status.textContent = text;
      spokenAt = Date.now();
    }
    if (isEnded) source.close();
  });
}
