// SPDX-License-Identifier: Apache-2.0

package document

import (
	"reflect"
	"strconv"
	"strings"
)

// Schema is the JSON Schema (draft 2020-12) of the grammar, with which an editor completes and checks a
// file while it is written. It never refuses what Read accepts. Read refuses more: what concerns two
// values, ranges of durations, and texts that only a program can check.
func (g *Grammar[T]) Schema() ([]byte, error) {
	s := g.compiled()
	schema := object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", s.name},
	}
	if s.about != "" {
		schema.add("description", s.about)
	}
	schema = append(schema, s.sectionSchema(s.root)...)
	schema.add("$defs", object{{"variable", object{
		{"description", "${NAME} stands for the value of the environment variable NAME."},
		{"type", "string"},
		{"pattern", `\$\{[A-Za-z_][A-Za-z0-9_]*\}`},
	}}})
	return indentedJSON(schema)
}

func (s *shape) sectionSchema(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range fieldsOf(t) {
		properties.add(f.key, s.fieldSchema(f))
		if f.required {
			required = append(required, f.key)
		}
	}
	schema := object{{"type", "object"}, {"properties", properties}}
	if len(required) > 0 {
		schema.add("required", required)
	}
	schema.add("additionalProperties", false)
	return schema
}

// fieldSchema is the schema of a key: what it is for, and what it may be.
func (s *shape) fieldSchema(f field) object {
	schema := object{{"description", s.description(f)}}
	if f.preset != "" {
		schema.add("default", presetValue(f))
	}
	if f.kind == kindSecret {
		schema.add("writeOnly", true)
	}
	if f.unit != "" {
		schema.add("x-unit", f.unit)
	}
	if example := s.formatExample(f); example != "" {
		schema.add("examples", []string{example})
	}
	return append(schema, s.valueSchema(f)...)
}

// valueSchema is what the value of a field, or an entry without a key, may be.
func (s *shape) valueSchema(f field) object {
	variable := object{{"$ref", "#/$defs/variable"}}
	switch f.kind {
	case kindFree:
		return nil
	case kindSection:
		section := s.sectionSchema(f.typ)
		if !reflect.PointerTo(f.typ).Implements(reflect.TypeFor[Choice]()) {
			return section
		}
		section = append(section, object{{"minProperties", 1}, {"maxProperties", 1}}...)
		if f.word == "" {
			return section
		}
		return object{{"oneOf", []any{object{{"const", f.word}}, section, variable}}}
	case kindList:
		list := s.listSchema(f)
		if f.word == "" {
			return list
		}
		return object{{"oneOf", []any{object{{"const", f.word}}, list, variable}}}
	case kindMap:
		return s.mapSchema(f)
	default:
		return object{{"anyOf", []any{s.scalarSchema(f), variable}}}
	}
}

func (s *shape) listSchema(f field) object {
	list := object{{"type", "array"}, {"items", s.valueSchema(*f.entry)}}
	if low, err := strconv.Atoi(f.limit("min")); err == nil {
		list.add("minItems", low)
	}
	if high, err := strconv.Atoi(f.limit("max")); err == nil {
		list.add("maxItems", high)
	}
	if f.entry.kind == kindText {
		list.add("uniqueItems", true)
	}
	return list
}

func (s *shape) mapSchema(f field) object {
	schema := object{{"type", "object"}}
	if format, ok := s.formats[f.keyRule]; ok && format.Pattern != "" {
		schema.add("propertyNames", object{{"pattern", format.Pattern}})
	}
	if high, err := strconv.Atoi(f.limit("max")); err == nil {
		schema.add("maxProperties", high)
	}
	schema.add("additionalProperties", s.valueSchema(*f.entry))
	return schema
}

func (s *shape) scalarSchema(f field) object {
	switch f.kind { //nolint:exhaustive // the others are no scalars
	case kindCount:
		schema := object{{"type", "integer"}}
		for _, rule := range []struct{ name, key string }{{"eq", "const"}, {"min", "minimum"}, {"max", "maximum"}} {
			if n, err := strconv.ParseInt(f.limit(rule.name), 10, 64); err == nil {
				schema.add(rule.key, n)
			}
		}
		return schema
	case kindDuration:
		return object{{"type", "string"}, {"pattern", `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`}}
	case kindSwitch:
		return object{{"type", "boolean"}}
	}
	if words := strings.Fields(f.limit("oneof")); len(words) > 0 {
		return object{{"enum", words}}
	}
	format, known := s.format(f)
	if !known {
		return object{{"type", "string"}}
	}
	// An unquoted 42 or true is a text to Read, where the format allows it, and something else to a schema.
	types := []string{"string"}
	if why, _ := format.Trouble("42"); why == "" {
		types = append(types, "number")
	}
	if why, _ := format.Trouble("true"); why == "" {
		types = append(types, "boolean")
	}
	schema := object{{"type", "string"}}
	if len(types) > 1 {
		schema = object{{"type", types}}
	}
	if format.Pattern != "" {
		schema.add("pattern", format.Pattern)
	} else {
		schema.add("minLength", 1)
	}
	return schema
}

// format is the format that the rules of a text name.
func (s *shape) format(f field) (Format, bool) {
	for rule := range strings.SplitSeq(f.validate, ",") {
		if format, ok := s.formats[rule]; ok {
			return format, true
		}
	}
	return Format{}, false
}

func (s *shape) formatExample(f field) string {
	if format, ok := s.format(f); ok && f.preset == "" {
		return format.Example
	}
	return ""
}

// description is the doc of a key with what a schema has no word for.
func (s *shape) description(f field) string {
	text := f.doc
	if rule := rangeOf(f); rule != "" && f.kind == kindDuration {
		text += " A duration " + rule + "."
	} else if rule != "" && f.unit != "" && f.kind == kindCount {
		text += " " + upperFirst(rule) + " " + f.unit + "."
	}
	if f.inherit != "" {
		text += " Absent: " + f.inherit + "."
	}
	return text
}

// rangeOf is the allowed range in words, or "".
func rangeOf(f field) string { return strings.TrimPrefix(strings.TrimSpace(span(f)), ": ") }

func upperFirst(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func presetValue(f field) any {
	switch f.kind {
	case kindCount:
		n, _ := strconv.ParseInt(f.preset, 10, 64)
		return n
	case kindSwitch:
		return f.preset == "true"
	default:
		return f.preset
	}
}
