// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/bothy/engine/document"
)

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	number = "0123456789"
)

// formats are the formats of this grammar. Those of jobs follow what River enforces when a worker is
// registered or a client starts, which it does not check when a job is inserted: a job that no worker can
// ever take is found here instead.
var formats = map[string]document.Format{
	"consumer_name": {
		Code: "bad-name", Example: "notify",
		Pattern: `^[a-z][a-z0-9_-]{1,61}[a-z0-9]$`,
		Fix:     "write 3 to 63 lower-case letters, digits, - and _, with a letter first and a letter or a digit last",
		Trouble: consumerName,
	},
	"handler_name": { // what engine.Register takes
		Code: "bad-handler", Example: "mentions",
		Pattern: `^[a-z][a-z0-9_]{0,62}$`,
		Fix:     "write up to 63 lower-case letters, digits and _, with a letter first",
		Trouble: func(text string) (string, string) { return shaped(text, 1, 63, lower, lower+number+"_", "") },
	},
	"label": {
		Code: "bad-label", Example: "production",
		Pattern: `^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`,
		Fix:     "write up to 63 letters, digits, -, _ and ., with a letter or a digit first",
		Trouble: func(text string) (string, string) {
			return shaped(text, 1, 63, lower+upper+number, lower+upper+number+"-_.", "")
		},
	},
	"schema_name": {
		Code: "bad-schema", Example: "bothy",
		Pattern: `^[a-z_][a-z0-9_]{0,62}$`,
		Fix:     "write up to 63 lower-case letters, digits and _, with a letter or _ first",
		Trouble: schemaName,
	},
	"river_schema": {
		Code: "bad-schema", Example: "public",
		Pattern: `^[A-Za-z_][A-Za-z0-9_]{0,62}$`,
		Fix:     "write up to 63 letters, digits and _, with a letter or _ first",
		Trouble: riverSchema,
	},
	"role_name": {
		Code: "bad-role", Example: "bothy_app",
		Fix:     "write the name of a database role, at most 63 bytes",
		Trouble: roleName,
	},
	"job_kind": {
		Code: "bad-kind", Example: "orders.notify",
		Pattern: `^[A-Za-z0-9_][A-Za-z0-9_\[\]<>/.·:+-]{1,126}$`,
		Fix:     "write 2 to 127 letters, digits and . - _ / : + < > [ ], with a letter, a digit or _ first",
		Trouble: jobKind,
	},
	"queue_name": {
		Code: "bad-queue", Example: "default",
		Pattern: `^[a-z0-9]+([_|-]?[a-z0-9]+)*$`,
		Fix:     "write up to 64 lower-case letters and digits, with single - or _ between them",
		Trouble: queueName,
	},
	"glob": {
		Code: "bad-pattern", Example: "order.*",
		Pattern: `^\S{1,255}$`,
		Fix:     "write an event type, with * for any run of characters",
		Trouble: glob,
	},
	"recipient": {
		Code: "bad-recipient", Example: "alex",
		Fix:     "write a text without the character U+0000, at most 1000 characters",
		Trouble: recipient,
	},
	"database_url": {
		Code: "bad-url", Example: "postgres://app@db.example.com/shop",
		Pattern: `^(postgres(ql)?://|[^:]*=)`,
		Fix:     "write postgres://user:password@host:port/database with reserved characters percent-encoded, key=value pairs, or a variable: ${NAME}",
		Trouble: databaseURL,
	},
	"file_path": {
		Code: "bad-path", Example: "/run/secrets/database_url",
		Fix:     "write the path of a file",
		Trouble: filePath,
	},
	"listen_address": {
		Code: "bad-listen", Example: "127.0.0.1:9464",
		Pattern: `^[^/\s]*:[0-9]{1,5}$`,
		Fix:     "write HOST:PORT, such as 127.0.0.1:9464, or :9464 for every interface",
		Trouble: listenAddress,
	},
	"table_name": {
		Code: "bad-table", Example: "public.search_index_state",
		Pattern: `^[A-Za-z_][A-Za-z0-9_$]{0,62}\.[A-Za-z_][A-Za-z0-9_$]{0,62}$`,
		Fix:     "write schema.table, with letters, digits, _ and $, as PostgreSQL stores the names",
		Trouble: tableName,
	},
	"column_name": {
		Code: "bad-column", Example: "last_seq",
		Pattern: `^[A-Za-z_][A-Za-z0-9_$]{0,62}$`,
		Fix:     "write up to 63 letters, digits, _ and $, as PostgreSQL stores the name",
		Trouble: sqlName,
	},
	"condition": {
		Code: "bad-condition", Example: "kind = 'events'",
		Pattern: `^[^;]+$`,
		Fix:     "write what would stand after WHERE",
		Trouble: condition,
	},
	"admin_token": {
		Code: "bad-token", Example: "${BOTHY_ADMIN_TOKEN}",
		Fix:     "write a variable that holds 16 to 256 letters, digits and signs, such as what openssl rand -hex 32 prints",
		Trouble: adminToken,
	},
	"page_url": {
		Code: "bad-link", Example: "https://jobs.example.com/",
		Pattern: `^https?://`,
		Fix:     "write an address that a browser opens, such as https://jobs.example.com/, without a user and a password",
		Trouble: pageURL,
	},
	"rule_query": {
		Code: "bad-query", Example: "SELECT b.seq, b.resource_id AS recipient FROM batch b",
		Fix:     "write one SELECT over the relation batch that gives seq and recipient",
		Trouble: func(text string) (string, string) { _, why, fix := trimQuery(text); return why, fix },
		Place:   queryPlace,
	},
}

// shaped checks length in characters, the first character, all characters and the last one (where given).
func shaped(text string, low, high int, first, all, last string) (why, fix string) {
	n := utf8.RuneCountInString(text)
	if n < low {
		return "which is too short", ""
	}
	if n > high {
		return "which is too long", ""
	}
	for _, c := range text {
		if !strings.ContainsRune(all, c) {
			return "which holds " + named(c), ""
		}
	}
	if c, _ := utf8.DecodeRuneInString(text); !strings.ContainsRune(first, c) {
		return "which begins with " + named(c), ""
	}
	if c, _ := utf8.DecodeLastRuneInString(text); last != "" && !strings.ContainsRune(last, c) {
		return "which ends with " + named(c), ""
	}
	return "", ""
}

// named is a character as a reader can tell it.
func named(c rune) string {
	switch {
	case c == ' ':
		return "a blank"
	case c >= '0' && c <= '9':
		return "the digit " + string(c)
	case unicode.IsUpper(c):
		return "the upper-case letter " + string(c)
	case unicode.IsPrint(c):
		return `the character "` + string(c) + `"`
	default:
		return "a character that cannot be seen"
	}
}

func consumerName(text string) (why, fix string) {
	return shaped(text, 3, 63, lower, lower+number+"-_", lower+number)
}

func schemaName(text string) (why, fix string) {
	if strings.HasPrefix(text, "pg_") || text == "information_schema" {
		return "a name that PostgreSQL keeps for itself", "choose another name"
	}
	return shaped(text, 1, 63, lower+"_", lower+number+"_", "")
}

func riverSchema(text string) (why, fix string) {
	if strings.HasPrefix(text, "pg_") || text == "information_schema" {
		return "a name that PostgreSQL keeps for itself", "name the schema that holds river_job"
	}
	return shaped(text, 1, 63, lower+upper+"_", lower+upper+number+"_", "")
}

// sqlName is a name as it stands in the catalog: it is quoted wherever it is used.
func sqlName(text string) (why, fix string) {
	return shaped(text, 1, 63, lower+upper+"_", lower+upper+number+"_$", "")
}

func tableName(text string) (why, fix string) {
	schema, table, qualified := strings.Cut(text, ".")
	if !qualified {
		return "without a schema", "write schema.table: a search path must not decide which table is changed"
	}
	if strings.HasPrefix(schema, "pg_") || schema == "information_schema" {
		return "in a schema that PostgreSQL keeps for itself", "name a table of your own"
	}
	if why, fix = sqlName(schema); why != "" {
		return why, fix
	}
	return sqlName(table)
}

// condition takes what stands in parentheses of its own without changing what stands around them.
func condition(text string) (why, fix string) {
	depth := 0
	for _, c := range text {
		switch {
		case c == ';':
			return "which holds a semicolon", "write one condition"
		case c == '(':
			depth++
		case c == ')':
			depth--
		case unicode.IsControl(c) && !unicode.IsSpace(c):
			return "which holds a character that cannot be seen", ""
		}
		if depth < 0 {
			return "which closes a parenthesis that it did not open", ""
		}
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "which is empty", "write a condition, or remove the key"
	case depth > 0:
		return "which opens a parenthesis that it does not close", ""
	case strings.Contains(text, "--") || strings.Contains(text, "/*"):
		return "which holds a comment", "write the comment behind a # in this file"
	default:
		return "", ""
	}
}

func roleName(text string) (why, fix string) {
	switch {
	case text == "":
		return "which is empty", ""
	case len(text) > 63:
		return "which is too long", ""
	case strings.HasPrefix(text, "pg_") || text == "public" || text == "none":
		return "a name that PostgreSQL keeps for itself", "name a role of your own"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "which holds a character that cannot be seen", ""
	case strings.TrimSpace(text) != text:
		return "with a blank at its end", "remove the blank"
	default:
		return "", ""
	}
}

func jobKind(text string) (why, fix string) {
	const word = lower + upper + number + "_"
	if len(text) > 127 { // River counts characters, its index bytes: the stricter of the two
		return "which is too long", ""
	}
	return shaped(text, 2, 127, word, word+"-[]<>/.·:+", "")
}

func queueName(text string) (why, fix string) {
	const between = "-_|" // River takes a | too
	if why, fix = shaped(text, 1, 64, lower+number, lower+number+between, lower+number); why != "" {
		return why, fix
	}
	for i := 1; i < len(text); i++ {
		if strings.IndexByte(between, text[i-1]) >= 0 && strings.IndexByte(between, text[i]) >= 0 {
			return "which holds " + text[i-1:i+1], ""
		}
	}
	return "", ""
}

func glob(text string) (why, fix string) {
	switch {
	case text == "":
		return "which is empty", ""
	case utf8.RuneCountInString(text) > 255:
		return "which is too long", ""
	case strings.ContainsFunc(text, unicode.IsSpace):
		return "which holds a blank", "write one pattern per entry of the list, without blanks"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "which holds a character that cannot be seen", ""
	default:
		return "", ""
	}
}

func recipient(text string) (why, fix string) {
	switch {
	case text == "":
		return "which is empty", ""
	case strings.ContainsRune(text, 0):
		return "which holds the character U+0000, and PostgreSQL stores none", "remove it"
	case utf8.RuneCountInString(text) > 1000:
		return "which is too long", ""
	default:
		return "", ""
	}
}

func filePath(text string) (why, fix string) {
	switch {
	case text == "":
		return "which is empty", ""
	case strings.ContainsFunc(text, unicode.IsControl):
		return "which holds a character that cannot be seen", ""
	case strings.Contains(text, "://"):
		return "which is a URL", "write the path of a file that holds it"
	default:
		return "", ""
	}
}
