import ts from 'typescript';

/**
 * The files of TypeScript's own library and of packages, which all programs of a process share.
 */
const sharedFiles = new Map<string, ts.SourceFile>();

/** True for the files of packages, but not for those of the client that a test has built. */
const isShared = (file: string): boolean =>
  /\/node_modules\/(?!sales-back-office-client\/)/.test(file);

/**
 * Compiles as `tsc` does, in this process: a process of its own would read TypeScript and its
 * library again. Checks no shared file, which takes several seconds of CPU time.
 * @throws with the messages of the compiler
 */
export function compile(files: string[], options: ts.CompilerOptions): void {
  const host = ts.createCompilerHost(options);
  const read = host.getSourceFile;
  host.getSourceFile = (file, languageVersion, ...rest) => {
    const known = sharedFiles.get(file);
    if (known) return known;
    const source = read(file, languageVersion, ...rest);
    if (source && isShared(file)) sharedFiles.set(file, source);
    return source;
  };

  const program = ts.createProgram(files, options, host);
  // With `noEmit`, the program would check every file.
  const emitted = options.noEmit ? [] : program.emit().diagnostics;
  const checked = program.getSourceFiles().filter(({ fileName }) => !isShared(fileName));

  const messages = [
    ...program.getOptionsDiagnostics(),
    ...program.getGlobalDiagnostics(),
    ...checked.flatMap(file => [
      ...program.getSyntacticDiagnostics(file),
      ...program.getSemanticDiagnostics(file),
    ]),
    ...emitted,
  ];

  if (messages.length > 0) throw new Error(ts.formatDiagnostics(messages, host));
}

/** Compiles the project of a tsconfig.json. */
export function compileProject(folder: string, outDir: string): void {
  const { config } = ts.readConfigFile(`${folder}/tsconfig.json`, ts.sys.readFile);
  const { fileNames, options } = ts.parseJsonConfigFileContent(config, ts.sys, folder, { outDir });
  compile(fileNames, options);
}
