const maxRedirects = 20;

/** The cookies of one browser at one origin, by name. Paths and ages are not looked at. */
export class CookieJar {
  readonly #cookies = new Map<string, string>();

  /** Sends a request with the cookies, follows no redirect, and keeps what is set. */
  async fetch(url: string, init: RequestInit = {}): Promise<Response> {
    const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const response = await fetch(url, {
      ...init,
      redirect: 'manual',
      headers: { ...(cookie ? { cookie } : {}) },
    });

    for (const text of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(text) ?? [];
      if (value === '') this.#cookies.delete(name);
      else this.#cookies.set(name, value);
    }

    return response;
  }

  /**
   * Follows redirects until one leads to a URL that begins with `end`.
   * @returns that URL, which is not fetched
   */
  async follow(url: string, end: string): Promise<URL> {
    let next = new URL(url);
    const passed: string[] = [];
    while (!next.href.startsWith(end)) {
      passed.push(next.pathname);
      if (passed.length > maxRedirects) throw new Error(`too many redirects: ${passed.join(' ')}`);
      const response = await this.fetch(next.href);
      const location = response.headers.get('location');
      if (location === null) {
        throw new Error(`${next} answered ${response.status}: ${await response.text()}`);
      }
      next = new URL(location, next);
    }

    return next;
  }
}
