/**
 * Returns the error that a promise rejects with.
 * @throws when the promise resolves
 */
export async function errorOf(promise: Promise<unknown>): Promise<Error & { code?: string }> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof Error)) throw new Error('the promise did not reject with an error');
  return error;
}
