import { problems } from '../errors.ts';
import { type Document, documentText, shownDocuments } from './document-page.ts';
import { meanings } from './errors-page.ts';
import { textSections } from './markdown.ts';
import type { Site } from './page.ts';
import type { EndpointGroup } from './reference.ts';

/** What search.js searches: title, address, where that is, the words to show below it, and all other words. */
type Entry = readonly [title: string, address: string, place: string, shown: string, words: string];

const maxShown = 120; // characters

/** The search index of all pages, as JSON. The browser searches it, so that the search needs no server. */
export async function searchIndex(groups: readonly EndpointGroup[], site: Site): Promise<string> {
  const ofDocuments = await Promise.all(shownDocuments(site).map(documentEntries));
  return JSON.stringify([...ofDocuments.flat(), ...groups.flatMap(endpointEntries), ...errorEntries()]);
}

function endpointEntries({ name, page, endpoints }: EndpointGroup): Entry[] {
  return endpoints.map(({ id, method, path, summary, description, body, response }) => {
    const fields = [body, response.body].flatMap(each => Object.keys(each?.schema.properties ?? {}));
    return [summary, `${page}#${id}`, `Reference: ${name}`, `${method} ${path}`, wordsOf(`${description} ${fields}`)];
  });
}

function errorEntries(): Entry[] {
  return Object.entries(meanings).map(([code, meaning]) => {
    const { status, title } = problems[code as keyof typeof problems];
    return [code, `/docs/errors#${code}`, 'Errors', `${status} ${title}`, wordsOf(meaning)];
  });
}

async function documentEntries({ file, path, title }: Document): Promise<Entry[]> {
  const sections = textSections(await documentText(file)).filter(({ heading, text }) => heading || text);
  return sections.map(({ id, heading, text }) => [
    heading || title,
    id === '' ? path : `${path}#${id}`,
    title,
    text.length > maxShown ? `${text.slice(0, maxShown).replace(/\s\S*$/, '')} …` : text,
    wordsOf(text.slice(maxShown)),
  ]);
}

/** The different words of a text, in lower case. */
function wordsOf(text: string): string {
  return [...new Set(text.toLowerCase().match(/[\p{L}\p{N}_]{2,}/gu))].join(' ');
}
