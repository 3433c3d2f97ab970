/** Returns the environment of this process: the one place that reads it. */
export function environment(): NodeJS.ProcessEnv {
  return process.env;
}
