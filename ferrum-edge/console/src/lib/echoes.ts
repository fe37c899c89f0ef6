// The page returns each text that a user types to the editor, often after the user has typed more.

/** Distinguishes returned texts from those that another view wrote. */
export class Echoes {
  private out: string[] = [];

  typed(text: string): void {
    this.out.push(text);
  }

  /** Takes a text from the page; true if the user typed it here. The page has returned or skipped what was typed before it. */
  receive(text: string): boolean {
    const at = this.out.indexOf(text);
    this.out = at < 0 || text === this.out.at(-1) ? [] : this.out.slice(at + 1);
    return at >= 0;
  }
}
