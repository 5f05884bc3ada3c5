// SPDX-License-Identifier: Apache-2.0

// Package statuspage owns the page that shows a person how the engine is doing: its HTML, style and script, the
// facts below it as JSON, and who may read them.
//
//	Changed (rounds, observations) --> Run, once a second --> revision --> viewers who wait
//	Observed (every observation) ----> history, bounded                       |
//	Options.Facts (what is known) <---------------------- GET status/facts ---+
//
// The page asks for the facts and names the revision that it has; the answer comes when there is a newer one, and
// is written once for all viewers. Nobody who looks makes a statement run, and nothing here shows an event, a
// recipient or the text of an error. It refuses everything but GET, every request without the token, and, where
// there is no token, every request that was not meant for this machine.
//
// It knows no database, no round and no file: values are handed to it.
package statuspage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
)

// Path is where the page is served; everything that it needs is below.
const Path = "/status"

// Access is who may read the facts. The zero value is nobody.
type Access string

// The ways to decide that.
const (
	ByToken Access = "token" // who sends Options.Token
	Local   Access = "local" // whoever asks for this machine by a name that only it can have
)

// Options say what is shown, and to whom.
type Options struct {
	Access Access
	Token  string // of ByToken; empty answers that there is none
	// Refusal is why this process serves no page, or empty. It is asked for every request.
	Refusal func() string
	// Facts are what is known now. They are asked when somebody looks, and must come at once.
	Facts func() Facts
	// Wide and Tall are the picture of the table, from left to right and from top to bottom. They are trusted.
	Wide, Tall string
	Version    string
}

//go:embed assets/page.html assets/page.css assets/page.js assets/icon.svg
var assets embed.FS

// Page is the status page of one process. All methods may be called from many goroutines.
type Page struct {
	options Options
	guard   *guard
	watch   *watch
	history *history
	files   map[string]file
}

// file is one answer that never changes.
type file struct {
	kind string
	text []byte
	tag  string
}

// New makes the page. An error is one of its template.
func New(o Options) (*Page, error) {
	p := &Page{options: o, guard: newGuard(o.Access, o.Token), history: &history{}, files: map[string]file{}}
	p.watch = newWatch(p.facts)
	for name, kind := range map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return nil, fmt.Errorf("read a file of the status page: %w", err)
		}
		p.files[name] = newFile(kind, text)
	}
	t, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return nil, fmt.Errorf("read the status page: %w", err)
	}
	var text bytes.Buffer
	err = t.Execute(&text, map[string]any{
		"Version": o.Version, "Access": o.Access,
		"Wide": template.HTML(o.Wide), "Tall": template.HTML(o.Tall), //nolint:gosec // drawn by the engine, which escapes every word
	})
	if err != nil {
		return nil, fmt.Errorf("write the status page: %w", err)
	}
	p.files["page.html"] = newFile("text/html; charset=utf-8", text.Bytes())
	return p, nil
}

func newFile(kind string, text []byte) file {
	sum := sha256.Sum256(text)
	return file{kind, text, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// facts are what is known now, with the history.
func (p *Page) facts() Facts {
	f := p.options.Facts()
	f.History = p.history.all()
	return f
}

// Handler serves the page at Path and what it needs below.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, p.serve("page.html"))
	mux.HandleFunc("GET "+Path+"/page.css", p.serve("page.css"))
	mux.HandleFunc("GET "+Path+"/page.js", p.serve("page.js"))
	mux.HandleFunc("GET "+Path+"/icon.svg", p.serve("icon.svg"))
	mux.HandleFunc("GET "+Path+"/facts", p.serveFacts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head(w)
		if why := p.options.Refusal(); why != "" {
			refuse(w, http.StatusNotFound, why)
			return
		}
		if status, why := p.guard.admits(r); why != "" {
			refuse(w, status, why)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// policy lets the page load its own style and script and ask its own server, and nothing else. The script cannot
// turn a text into markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// head writes what every answer has.
func head(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
}

// refuse answers with one line.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(why + "\n")) // the client is gone when it fails
}

// serve serves one file, which a browser asks about again before it uses its copy.
func (p *Page) serve(name string) http.HandlerFunc {
	f := p.files[name]
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Content-Type", f.kind)
		w.Header().Set("Etag", f.tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.text))
	}
}

// serveFacts answers at once when the facts are newer than the revision that the client has, and waits for them
// otherwise.
func (p *Page) serveFacts(w http.ResponseWriter, r *http.Request) {
	if status, after, why := p.guard.knows(r); why != "" {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="bothy"`)
		}
		if after > 0 {
			w.Header().Set("Retry-After", seconds(after))
		}
		refuse(w, status, why)
		return
	}
	text, err := p.watch.next(r.Context(), strings.TrimSpace(r.URL.Query().Get("after")))
	switch {
	case err != nil:
		refuse(w, http.StatusInternalServerError, "the facts cannot be written: this is a mistake of the engine")
	case text == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // the client is gone when it fails
	}
}
