/** What is wrong with an archive, by kind. */
export type ArchiveFaultKind = 'missing' | 'foreign' | 'damaged' | 'truncated' | 'wrong_key' | 'wrong_contents';

/** An archive that cannot be used, or not all of it. The message says why, and contains no data of the archive. */
export class ArchiveFault extends Error {
  override name = 'ArchiveFault';
  readonly kind: ArchiveFaultKind;

  constructor(kind: ArchiveFaultKind, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}
