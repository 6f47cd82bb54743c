// The page's keys: Space (hold), M, C, Escape and ?. Never in a text field, never with a modifier,
// and a person can turn them off (speech input and screen readers have keys of their own).

const INTERACTIVE = "input, textarea, select, button, a[href], summary, [contenteditable], [tabindex='0']";
const TEXT = "input:not([type=checkbox]):not([type=radio]):not([type=button]), textarea, select, [contenteditable]";

export class Keys {
  /**
   * @param {{m: Function, c: Function, "?": Function, escape: Function, press: Function,
   *   release: Function, wantsSpace: (target: Element) => boolean}} actions
   *   press() and release() of Space, where `wantsSpace` says that it means something
   */
  constructor(actions) {
    this.actions = actions;
    this.enabled = true;
    this.down = false; // Space
    document.addEventListener("keydown", (event) => this.onDown(event));
    document.addEventListener("keyup", (event) => this.onUp(event));
    window.addEventListener("blur", () => this.up());
    document.addEventListener("visibilitychange", () => document.hidden && this.up());
  }

  onDown(event) {
    if (document.querySelector("dialog[open]")) return; // a dialog has Escape for itself
    if (event.key === "Escape") {
      this.actions.escape();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === " ") this.onSpace(event);
    else if (this.enabled && !event.repeat && !event.target.closest?.(TEXT)) this.act(event);
  }

  act(event) {
    const name = event.key.toLowerCase();
    if (!["m", "c", "?"].includes(name)) return;
    event.preventDefault();
    this.actions[name]();
  }

  /** A control that has the focus keeps Space, but for the button that is held with it. */
  onSpace(event) {
    const control = event.target.closest?.(INTERACTIVE);
    const onTalk = control?.id === "talk";
    if (control && !onTalk) return;
    if (!this.enabled && !onTalk) return;
    if (!this.actions.wantsSpace(onTalk)) return;
    event.preventDefault();
    if (event.repeat || this.down) return;
    this.down = true;
    this.actions.press();
  }

  onUp(event) {
    if (event.key !== " " || !this.down) return;
    event.preventDefault(); // or a button that has the focus would be clicked
    this.up();
  }

  up() {
    if (!this.down) return;
    this.down = false;
    this.actions.release();
  }
}
