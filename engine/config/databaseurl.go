// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.com/bothy/engine/problem"
)

// connection is what a database URL, or its other form of key=value pairs, says. The text may hold a password
// anywhere, also where it was not meant to stand: no message repeats a part of it.
type connection struct {
	hosts, ports []string
	parameters   []parameter // the others, in their order
}

type parameter struct{ key, value string }

const (
	encode   = "percent-encode the characters % : / ? # [ ] @ in user and password"
	pairs    = "write key=value pairs with blanks between them, and a value that holds a blank or nothing in single quotes"
	ports    = "write a port such as 5432"
	variable = "a variable is written ${NAME}"
)

var (
	bareVariable = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*$`)
	pairBlanks   = " \t\r\n\v\f"
)

// databaseURL accepts what PostgreSQL's own tools accept, as far as that can be told without connecting.
func databaseURL(text string) (why, fix string) {
	c, why, fix := readConnection(text)
	if why != "" {
		return why, fix
	}
	return c.trouble()
}

// readConnection takes a text apart, or says why it cannot.
func readConnection(text string) (c connection, why, fix string) {
	scheme, rest, isURL := strings.Cut(text, "://")
	switch {
	case strings.ContainsRune(text, 0):
		return c, "which holds the character U+0000", "remove it"
	case bareVariable.MatchString(text):
		return c, "which is no URL but a name behind $", variable
	case strings.Contains(scheme, "="): // and :// is in a value
		return c, c.readPairs(text), pairs
	case !isURL:
		return c, "which is neither a URL nor key=value pairs", ""
	case scheme != "postgres" && scheme != "postgresql":
		return c, "whose scheme is not postgres", "begin it with postgres://"
	}
	why, fix = c.readURL(rest)
	return c, why, fix
}

// readURL reads what follows the scheme, as PostgreSQL does: user and password end at the first @ before a /, and
// several hosts are allowed.
func (c *connection) readURL(rest string) (why, fix string) {
	user := ""
	at := strings.IndexAny(rest, "@/")
	hasUser := at >= 0 && rest[at] == '@'
	if hasUser {
		user, rest = rest[:at], rest[at+1:]
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	hosts, tail := rest[:end], rest[end:]
	path, query, _ := strings.Cut(tail, "?")
	for _, part := range []string{user, path} {
		if why, fix := encoded(part); why != "" {
			return why, fix
		}
	}
	if strings.Contains(hosts, "@") || strings.Contains(path, "@") && !hasUser {
		return "whose user and password hold a / or an @ that ends them too early", encode
	}
	for host := range strings.SplitSeq(hosts, ",") {
		name, port, ok := cutPort(host)
		if !ok {
			return "which cannot be read as a URL", encode
		}
		if !isPort(port) && strings.Contains(tail, "@") { // a password went on, behind a / or a ?
			return "which cannot be read as a URL", encode
		}
		c.hosts, c.ports = append(c.hosts, name), append(c.ports, port)
	}
	if query == "" {
		return "", ""
	}
	for pair := range strings.SplitSeq(query, "&") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || strings.Contains(value, "=") {
			return "whose part behind ? does not consist of key=value", "write key=value there, with & between two of them"
		}
		if why, fix := encoded(pair); why != "" {
			return why, fix
		}
		key, _ = url.PathUnescape(strings.Trim(key, " "))
		value, _ = url.PathUnescape(strings.Trim(value, " "))
		c.set(key, value)
	}
	return "", ""
}

// encoded says why a part of a URL cannot be decoded.
func encoded(part string) (why, fix string) {
	decoded, err := url.PathUnescape(part)
	switch {
	case err != nil: // the error holds the text
		return "which cannot be read as a URL", encode
	case strings.ContainsRune(decoded, 0):
		return "which holds the character U+0000", "remove it"
	case strings.Contains(strings.Trim(part, " "), " "):
		return "which holds a blank", "write %20 for a blank"
	default:
		return "", ""
	}
}

// cutPort cuts a host of a URL from its port. An address in brackets holds colons of its own.
func cutPort(host string) (name, port string, ok bool) {
	if _, err := url.PathUnescape(host); err != nil {
		return "", "", false
	}
	if !strings.HasPrefix(host, "[") {
		name, port, _ = strings.Cut(host, ":")
		return name, port, !strings.ContainsAny(name, "[]{}<>$\"\\^`| ")
	}
	end := strings.IndexByte(host, ']')
	if end < 2 {
		return "", "", false
	}
	rest := host[end+1:]
	port, ok = strings.CutPrefix(rest, ":")
	return host[1:end], port, ok || rest == ""
}

// readPairs reads key=value pairs, and says why it cannot.
func (c *connection) readPairs(text string) (why string) {
	for text = strings.TrimLeft(text, pairBlanks); text != ""; text = strings.TrimLeft(text, pairBlanks) {
		key, rest, ok := strings.Cut(text, "=")
		key = strings.Trim(key, pairBlanks)
		if !ok || key == "" || strings.ContainsAny(key, pairBlanks) {
			return "which holds a word that is no key=value"
		}
		value, rest, ok := pairValue(strings.TrimLeft(rest, pairBlanks))
		if !ok {
			return "which holds a value in single quotes that is never closed"
		}
		c.set(key, value)
		text = rest
	}
	return ""
}

// pairValue reads a value: up to a blank, or to the quote that closes. A backslash takes the meaning of what follows.
func pairValue(text string) (value, rest string, ok bool) {
	text, quoted := strings.CutPrefix(text, "'")
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case quoted && text[i] == '\'':
			return b.String(), text[i+1:], true
		case !quoted && strings.IndexByte(pairBlanks, text[i]) >= 0:
			return b.String(), text[i:], true
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String(), "", !quoted
}

// set keeps one parameter. Hosts and ports are lists.
func (c *connection) set(key, value string) {
	switch key {
	case "host", "hostaddr":
		c.hosts = strings.Split(value, ",")
	case "port":
		c.ports = strings.Split(value, ",")
	default:
		c.parameters = append(c.parameters, parameter{key, value})
	}
}

// isPort reports whether a text is a port, or absent.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// choices are the parameters of a connection that take one of some words.
var choices = map[string][]string{
	"sslmode":              {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"},
	"sslnegotiation":       {"postgres", "direct"},
	"sslcertmode":          {"disable", "allow", "require"},
	"target_session_attrs": {"any", "read-write", "read-only", "primary", "standby", "prefer-standby"},
	"channel_binding":      {"disable", "prefer", "require"},
	"min_protocol_version": {"3.0", "3.2", "latest"},
	"max_protocol_version": {"3.0", "3.2", "latest"},
}

// trouble says what is wrong with the values that take no text.
func (c connection) trouble() (why, fix string) {
	for _, port := range c.ports {
		if !isPort(port) {
			return "whose port is no number from 1 to 65535", ports
		}
	}
	if len(c.ports) > 1 && len(c.ports) != len(c.hosts) {
		return fmt.Sprintf("which has %d ports for %d hosts", len(c.ports), max(len(c.hosts), 1)), "write one port for all hosts, or one for each"
	}
	for _, p := range c.parameters {
		words := choices[p.key]
		if words != nil && (p.value != "" || p.key == "target_session_attrs" || p.key == "sslcertmode") && !slices.Contains(words, p.value) {
			fix = "write one of " + strings.Join(words, ", ")
			if near := problem.Nearest(p.value, words); near != "" {
				fix = fmt.Sprintf("did you mean %q? %s", near, fix)
			}
			return "whose " + p.key + " is none of its words", fix
		}
		if n, err := strconv.ParseInt(p.value, 10, 64); p.key == "connect_timeout" && (err != nil || n < 0) {
			return "whose connect_timeout is no number of seconds", "write whole seconds, such as connect_timeout=10"
		}
	}
	return "", ""
}

// misspelled is the known parameter that is nearest to an unknown one, or "". A parameter of the server's own, or of an
// extension, is none of the driver's business: it is only told when it looks like a slip.
func misspelled(text string) string {
	c, why, _ := readConnection(text)
	if why != "" {
		return ""
	}
	for _, p := range c.parameters {
		if slices.Contains(parameters, p.key) || slices.Contains(settings, strings.ToLower(p.key)) || strings.Contains(p.key, ".") || len(p.key) > 100 {
			continue
		}
		if near := problem.Nearest(p.key, slices.Concat(parameters, settings)); near != "" {
			return near
		}
	}
	return ""
}

// parameters are those of a connection.
var parameters = []string{
	"host", "hostaddr", "port", "dbname", "database", "user", "password", "passfile", "connect_timeout", "client_encoding", "options",
	"application_name", "fallback_application_name", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
	"tcp_user_timeout", "replication", "gssencmode", "ssl", "sslmode", "sslnegotiation", "sslcompression", "sslcert", "sslkey",
	"sslpassword", "sslcertmode", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "requirepeer", "require_auth", "channel_binding",
	"ssl_min_protocol_version", "ssl_max_protocol_version", "min_protocol_version", "max_protocol_version", "krbsrvname", "krbspn",
	"gsslib", "gssdelegation", "service", "servicefile", "target_session_attrs", "load_balance_hosts", "scram_client_key",
	"scram_server_key", "sslkeylogfile", "pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_max_conn_lifetime",
	"pool_max_conn_idle_time", "pool_health_check_period", "pool_max_conn_lifetime_jitter", "default_query_exec_mode",
	"statement_cache_capacity", "description_cache_capacity",
}

// settings are parameters of the server that people set for a connection.
var settings = []string{
	"search_path", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout",
	"transaction_timeout", "timezone", "datestyle", "intervalstyle", "work_mem", "maintenance_work_mem", "temp_buffers", "role",
	"default_transaction_isolation", "default_transaction_read_only", "default_transaction_deferrable", "synchronous_commit",
	"jit", "log_statement", "log_min_duration_statement", "client_min_messages", "extra_float_digits", "tcp_keepalives_idle",
	"tcp_keepalives_interval", "tcp_keepalives_count", "client_connection_check_interval", "geqo", "row_security",
	"bytea_output", "xmloption", "lc_messages", "session_replication_role", "plan_cache_mode", "default_tablespace",
}
