import type { EventStream } from './event-stream.ts';
import type { ListExport } from './list-parameters/list-export.ts';
import type { Page } from './list-parameters/list-page.ts';
import type { Representation } from './representation.ts';

/**
 * A response that is sent as it is. A handler that returns a value instead sends only the
 * fields that its route names; what it returns as one of these it has made of rows with exactly
 * these fields.
 */
export type Sent = Representation | Page | ListExport | EventStream;
