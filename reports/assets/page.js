// Small behaviour of the page around the timeline. Everything on it is plain HTML and works without this.
// A link to a verdict opens what it is folded into.
function unfold() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.closest("details");
  if (folded && !folded.open) {
    folded.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", unfold);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((item) => (item.open = true)));
unfold();
// Without a timeline there is nothing to wait for.
window.gputrace ??= { ready: Promise.resolve() };
