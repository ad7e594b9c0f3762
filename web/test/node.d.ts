// The little of Node that the tests use; its own types would be one more package.
declare module 'node:test' {
  export function test(name: string, body: () => void | Promise<void>): void;
}
declare module 'node:crypto' {
  export const webcrypto: Crypto;
}
declare module 'node:assert/strict' {
  interface Assert {
    (value: unknown, message?: string): asserts value;
    equal(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    ok(value: unknown, message?: string): asserts value;
  }
  const assert: Assert;
  export default assert;
}
