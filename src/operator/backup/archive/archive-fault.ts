/**
 * The reason why an archive cannot be used:
 *
 * - `missing`: the target has no such object
 * - `sealed`: no identity of this host opens it
 * - `damaged`: a byte was changed, or it ends too early, or it is no archive
 * - `forged`: its code is absent or wrong, so its writer is not known
 * - `foreign`: it was made for another tenant, under another name, or by another installation
 * - `other_schema`: this build has another text of a page of its schema, or lacks the page
 */
export type ArchiveFaultKind =
  | 'missing'
  | 'sealed'
  | 'damaged'
  | 'forged'
  | 'foreign'
  | 'other_schema';

/**
 * An archive that cannot be used. The message says why, as the end of a sentence, and has no
 * data of the archive.
 */
export class ArchiveFault extends Error {
  override name = 'ArchiveFault';
  readonly kind: ArchiveFaultKind;

  /**
   * False if the fault is none of the archive, because another identity or another build may
   * open it: it is not recorded.
   */
  get isOfArchive(): boolean {
    return this.kind !== 'sealed' && this.kind !== 'other_schema';
  }

  constructor(kind: ArchiveFaultKind, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}
