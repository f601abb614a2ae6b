declare module 'pilothouse:operator/log@0.1.0' {
  /**
   * Write one line to the host's log, under the span of the pass (plugin, kind, key). At most 100 lines and
   * 64 KiB in a call; the rest is counted and dropped.
   */
  export function write(level: Level, message: string): void;
  /**
   * How much a line matters.
   * # Variants
   * 
   * ## `"debug"`
   * 
   * ## `"info"`
   * 
   * ## `"warn"`
   * 
   * ## `"error"`
   */
  export type Level = 'debug' | 'info' | 'warn' | 'error';
}
