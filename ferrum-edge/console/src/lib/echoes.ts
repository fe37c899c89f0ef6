// What somebody types goes up to the page and comes back down a little later, when more may have been typed.

/** Tells texts that come back from those that somebody else wrote. */
export class Echoes {
  private out: string[] = [];

  typed(text: string): void {
    this.out.push(text);
  }

  /** Whether this text was typed here, and is on its way back. What was typed before it has come back or been passed over. */
  has(text: string): boolean {
    const at = this.out.indexOf(text);
    this.out = at < 0 || text === this.out.at(-1) ? [] : this.out.slice(at + 1);
    return at >= 0;
  }
}
