import { writtenDocument } from '../src/docs/document.ts';

process.stdout.write(writtenDocument());
