import type { ListExport } from '../request/list-parameters/list-export.ts';
import type { EventStream } from './event-stream.ts';
import type { Page } from './list-page.ts';
import type { Representation } from './representation.ts';

/**
 * A response that is sent as it is. Of any other value, only the fields that the route names
 * are sent. A handler makes a `Sent` of rows that have exactly the fields of the response.
 */
export type Sent = Representation | Page | ListExport | EventStream;
