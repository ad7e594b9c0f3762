// Schemas as tools, structured answers and configuration files have them, made at random: the same
// ones for the same seed.

export function random(seed) {
  let state = seed >>> 0;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

const NAMES = [
  "id", "name", "title", "path", "query", "url", "limit", "offset", "tags", "items", "options",
  "status", "created_at", "email", "amount", "currency", "address", "city", "country", "filters",
  "sort_by", "order", "include", "exclude", "mode", "timeout_ms", "retries", "headers", "body",
  "language", "temperature", "max_tokens", "start_line", "end_line", "old_string", "new_string",
  "description", "command", "cwd", "env", "dry_run", "recursive", "pattern", "replacement", "format",
  "width", "height", "color", "x", "y", "width_px", "user-id", "$type", "@context", "größe",
];
const WORDS = [
  "asc", "desc", "open", "closed", "pending", "json", "csv", "red", "green", "blue", "low", "medium",
  "high", "read", "write", "GET", "POST", "celsius", "fahrenheit", "en", "de", "fr", "main", "draft",
];
const PATTERNS = [
  "^[a-z][a-z0-9_]*$", "^[A-Z]{2,3}$", "^\\d{4}-\\d{2}$", "^#[0-9a-fA-F]{6}$", "^v\\d+\\.\\d+\\.\\d+$",
  "^[^\\s]+$", "^(GET|POST|PUT)$", "^/[\\w./-]*$", "^\\+?[0-9 ]{6,15}$",
];
const FORMATS = ["date", "date-time", "email", "uuid", "uri", "ipv4", "time"];

class Maker {
  constructor(below) {
    this.below = below;
    this.defs = {};
  }

  chance(percent) {
    return this.below(100) < percent;
  }

  pick(list) {
    return list[this.below(list.length)];
  }

  some(list, least, most) {
    const out = new Set();
    const count = least + this.below(most - least + 1);
    while (out.size < count) out.add(this.pick(list));
    return [...out];
  }

  described(schema) {
    return this.chance(50) ? { ...schema, description: "What this is for, in a sentence." } : schema;
  }

  string() {
    const kind = this.below(10);
    if (kind < 4) return { type: "string" };
    if (kind < 6) return { type: "string", enum: this.some(WORDS, 2, 8) };
    if (kind === 6) return { type: "string", pattern: this.pick(PATTERNS) };
    if (kind === 7) return { type: "string", format: this.pick(FORMATS) };
    if (kind === 8) return { type: "string", minLength: 1, maxLength: this.pick([16, 64, 255, 1000]) };
    return { type: "string", const: this.pick(WORDS) };
  }

  number() {
    const integer = { type: "integer" };
    const kind = this.below(6);
    if (kind < 2) return integer;
    if (kind === 2) return { ...integer, minimum: this.below(3), maximum: 5 + this.below(1000) };
    if (kind === 3) return { ...integer, minimum: 1 };
    if (kind === 4) return { type: "number", minimum: 0, maximum: 1 };
    return { type: "number" };
  }

  array(depth) {
    const schema = { type: "array", items: this.value(depth - 1) };
    if (this.chance(30)) schema.minItems = 1;
    if (this.chance(30)) schema.maxItems = 1 + this.below(20);
    return schema;
  }

  object(depth) {
    const properties = {};
    for (const name of this.some(NAMES, 1, depth >= 3 ? 10 : 5)) {
      properties[name] = this.described(this.value(depth - 1));
    }
    const names = Object.keys(properties);
    const schema = { type: "object", properties };
    const required = names.filter(() => this.chance(60));
    if (required.length > 0) schema.required = required;
    if (this.chance(75)) schema.additionalProperties = false;
    return schema;
  }

  tagged(depth) {
    return this.some(WORDS, 2, 4).map((tag) => {
      const it = this.object(depth - 1);
      it.properties = { kind: { const: tag }, ...it.properties };
      it.required = ["kind", ...(it.required ?? [])];
      return it;
    });
  }

  reference(depth) {
    const name = `Part${1 + this.below(3)}`;
    if (!this.defs[name]) {
      this.defs[name] = true; // so that it does not refer to itself
      this.defs[name] = this.object(Math.min(depth - 1, 2));
    }
    return this.defs[name] === true ? { type: "null" } : { $ref: `#/$defs/${name}` };
  }

  value(depth) {
    const kind = this.below(depth <= 0 ? 60 : 100);
    if (kind < 30) return this.string();
    if (kind < 45) return this.number();
    if (kind < 53) return { type: "boolean" };
    if (kind < 57) return { anyOf: [this.string(), { type: "null" }], default: null };
    if (kind < 60) return { type: ["integer", "null"] };
    if (kind < 75) return this.array(depth);
    if (kind < 88) return this.object(depth);
    if (kind < 92) return { type: "object", additionalProperties: this.value(0) };
    if (kind < 95) return { [this.pick(["anyOf", "oneOf"])]: this.tagged(depth) };
    return this.reference(depth);
  }

  schema() {
    const schema = this.object(4);
    if (Object.keys(this.defs).length > 0) schema.$defs = this.defs;
    return schema;
  }
}

export function randomSchemas(count, seed) {
  const below = random(seed);
  return Array.from({ length: count }, () => new Maker(below).schema());
}
