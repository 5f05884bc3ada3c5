// SPDX-License-Identifier: Apache-2.0

//go:build browser && unix

package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/bothy/engine/enginetest"
)

var (
	picture  = flag.String("picture", "", "write the picture of the documentation to `FILE`")
	pictures = flag.String("pictures", "", "write pictures of the page on several screens into `DIR`, to look at")
)

// append appends an event.
func (d devProcess) append(t *testing.T, event string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(d.bin, "engine"), "events", "append", "--config", d.config, "-")
	cmd.Env, cmd.Stdin = append(os.Environ(), databaseVariable+"="+d.database), strings.NewReader(event+"\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("events append: %v\n%s", err, out)
	}
}

const placed = `{"specversion": "1.0", "id": "browser-1", "source": "/shop", "type": "order.placed", "subject": "order/900", "data": {}}`

// cell is the text of a cell of the table of consumers.
func cell(consumer, column string) string {
	return `[...document.querySelectorAll('#rows tr')].filter(r => r.querySelector('a').textContent === '` + consumer + `').map(r => r.children[` +
		strconv.Itoa(slices.Index([]string{"name", "state", "lag", "pending", "after", "cursor", "round", "failure"}, column)) + `].textContent)[0]`
}

const title = `document.getElementById('verdict-title').textContent`

// The page shows the sample: what is said to eyes, to a screen reader, on a phone and in the dark, and an event that is
// appended while somebody looks.
func TestBrowserShowsTheSample(t *testing.T) {
	t.Parallel()
	d := startDev(t, "../../consumers.yaml")
	p := startBrowser(t).open(d.page)
	p.screen(1280, 900, "light")
	p.until("every consumer keeps up", title+` === 'All 6 consumers keep up' && `+cell("archive", "lag")+` === '0'`)
	if got := p.eval(cell("push", "state")); got != "\u2713 up to date" {
		t.Errorf("the state of push reads %q", got)
	}
	p.until("the live end is marked", `document.querySelector('#consumer-push .machine .now')?.dataset.end === 'idle'`)
	p.until("an epoch is shown", `document.getElementById('epoch').textContent.length === 36`)
	p.until("the database is the right one", `document.getElementById('identity').textContent === 'Unchanged'`)
	p.until("the oldest event is set against retention", `document.getElementById('retention').textContent.startsWith('kept for 30 d')`)
	wantRoles(t, p)

	head := p.eval(`document.getElementById('head').textContent`)
	d.append(t, placed)
	p.until("the head has moved", `document.getElementById('head').textContent === '321'`)
	p.until("push has seen it", cell("push", "cursor")+` === '321' && `+cell("push", "lag")+` === '0'`)
	if head != "320" {
		t.Errorf("the head of the sample reads %q, want 320", head)
	}

	screens(t, p)
	if got := p.complaints(); len(got) > 0 {
		t.Errorf("the page complains: %q", got)
	}
	if got := p.eval(`document.cookie + Object.keys(localStorage).join()`); got != "" {
		t.Errorf("the page keeps %q, want nothing", got)
	}

	jobs := p.open(p.eval(`document.getElementById('jobs').href`))
	jobs.until("River UI shows itself", `document.body.innerText.includes('No jobs found')`)
}

// wantRoles looks at the page as a screen reader does.
func wantRoles(t *testing.T, p *tab) {
	t.Helper()
	roles := p.roles()
	for _, want := range []string{
		"banner", "main", "navigation Other pages", "link Jobs", "heading Bothy", "heading All 6 consumers keep up", "heading Event log",
		"heading Consumers", "heading State machines", "table", "columnheader Pending age", "rowheader watch-orders", "link watch-orders", "article push",
		"status", "image State machine of push. The newest round passed lock and ended idle.", "region Consumers",
	} {
		if !slices.Contains(roles, want) {
			t.Errorf("a screen reader is not told %q; it is told:\n%s", want, strings.Join(roles, "\n"))
		}
	}
	if !slices.ContainsFunc(roles, func(r string) bool { return strings.HasPrefix(r, "image Curve of the pending age") }) {
		t.Error("a screen reader is told nothing of the curves")
	}
	p.key("Tab", "", 9)
	if got := p.eval(`document.activeElement.className`); got != "skip" {
		t.Errorf("the first Tab leads to %q, want the link over the top", got)
	}
	p.eval(`document.activeElement.blur()`)
}

// screens looks at the page on a phone and in the dark, and takes the pictures that were asked for.
func screens(t *testing.T, p *tab) {
	t.Helper()
	take := func(name string) {
		if *pictures != "" {
			p.picture(filepath.Join(*pictures, name+".png"), !strings.HasPrefix(name, "phone"))
		}
	}
	light := p.eval(`getComputedStyle(document.body).backgroundColor`)
	take("desktop-light")
	if *picture != "" {
		p.picture(*picture, false)
		if info, err := os.Stat(*picture); err != nil || info.Size() >= 200_000 {
			t.Errorf("the picture of the documentation: %v, want less than 200 kB", err)
		}
	}
	p.screen(1280, 900, "dark")
	p.until("the page is dark", `getComputedStyle(document.body).backgroundColor !== '`+light+`'`)
	take("desktop-dark")
	for _, scheme := range []string{"light", "dark"} {
		p.screen(360, 780, scheme)
		p.eval(`document.querySelector('#consumer-push details').open = true`)
		p.until("the machine stands upright", `document.querySelector('#consumer-push .machine').dataset.shape === 'tall'`)
		if got := p.eval(`document.documentElement.scrollWidth`); got != "360" {
			t.Errorf("on a phone of 360 the page is %s wide", got)
		}
		if got := p.eval(`[...document.querySelectorAll('main svg, article')].filter(n => n.getBoundingClientRect().right > 361).length`); got != "0" {
			t.Errorf("on a phone, %s parts of the page stick out", got)
		}
		p.eval(`scrollTo(0, 0)`)
		take("phone-" + scheme)
		p.eval(`document.getElementById('consumer-push').scrollIntoView()`)
		take("phone-card-" + scheme)
	}
	p.screen(1280, 900, "light")
}

// A consumer whose cursor somebody holds is shown as stalled while its events wait for too long, and no longer once it
// goes on.
func TestBrowserShowsAStalledConsumer(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "consumers.yaml")
	text := `version: 1
database: {url: '${BOTHY_DATABASE_URL}'}
consumer: {poll_interval: 200ms, pending_alert_after: 1s}
consumers:
  - {name: archive, job: {kind: test.archive}, recipients: none}
  - {name: push, job: {kind: test.push}, recipients: {list: [alex]}}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDev(t, config)
	p := startBrowser(t).open(d.page)
	p.until("both keep up", title+` === 'All 2 consumers keep up'`)

	conn := enginetest.Connect(t, d.database)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM bothy.event_consumer_cursors WHERE name = 'push' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	d.append(t, placed)
	p.until("push is stalled", cell("push", "state")+` === '\u2715 stalled' && `+cell("push", "lag")+` === '1'`)
	p.until("that is the verdict", title+` === '1 of 2 stalled: push' && document.title.startsWith('! ')`)
	p.until("it is said aloud", `document.querySelector('[aria-live=polite]').textContent.includes('stalled: push')`)
	p.until("it stands first", `document.querySelector('#rows tr a').textContent === 'push' && document.querySelector('article h3').textContent === 'push'`)
	p.until("the other one goes on", cell("archive", "state")+` === '\u2713 up to date'`)
	if *pictures != "" {
		p.screen(1280, 900, "light")
		p.picture(filepath.Join(*pictures, "stalled-light.png"), true)
		p.screen(1280, 900, "dark")
		p.picture(filepath.Join(*pictures, "stalled-dark.png"), true)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.until("push goes on", cell("push", "state")+` === '\u2713 up to date' && `+title+` === 'All 2 consumers keep up'`)
	p.until("it stands in its place again", `document.querySelector('#rows tr a').textContent === 'archive'`)
	if _, err := conn.Exec(t.Context(), `INSERT INTO bothy.event_quarantine (consumer, seq, error_type, message, attempts) VALUES ('push', 1, '22012', 'x', 6)`); err != nil {
		t.Fatal(err)
	}
	d.append(t, placed)
	p.until("what is set aside is told", `[...document.querySelectorAll('article .aside')].filter((a) => !a.hidden && a.textContent === '1 event set aside: engine quarantine list').length === 1`)
	if got := p.complaints(); len(got) > 0 {
		t.Errorf("the page complains: %q", got)
	}
}

// Outside dev the page asks for the token, keeps it in the tab, and shows nothing without.
func TestBrowserAsksForTheToken(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	config := filepath.Join(t.TempDir(), "consumers.yaml")
	text := `version: 1
database: {url: '${BOTHY_DATABASE_URL}'}
http: {listen: '127.0.0.1:0', admin_token: '${BOTHY_ADMIN_TOKEN}'}
consumers: [{name: push, job: {kind: test.push}, recipients: none}]
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	said := &lastWords{}
	open := regexp.MustCompile(`http listener open" address=(\S+)`)
	startProcess(t, said, []string{databaseVariable + "=" + db.AppURL, "BOTHY_ADMIN_TOKEN=correct-horse-battery"}, open, "run", "--role", "api", "--config", config)
	p := startBrowser(t).open("http://" + open.FindStringSubmatch(said.String())[1] + "/status")
	p.until("it asks", `!document.getElementById('gate').hidden && document.activeElement.id === 'token'`)
	if got := p.eval(`document.getElementById('page').hidden + document.getElementById('rows').textContent`); got != "true" {
		t.Errorf("before the token the page shows %q", got)
	}
	if *pictures != "" {
		p.screen(360, 640, "light")
		p.picture(filepath.Join(*pictures, "gate.png"), true)
	}
	p.write("wrong-token-of-somebody")
	p.key("Enter", "\r", 13)
	p.until("it refuses", `document.querySelector('[role=alert]').textContent === 'the token is not that of http.admin_token'`)
	p.write("correct-horse-battery")
	p.key("Enter", "\r", 13)
	p.until("it lets in", `!document.getElementById('page').hidden && `+cell("push", "state")+` === '+ no cursor yet'`)
	p.until("it says that no rounds run here", `!document.getElementById('elsewhere').hidden`)
	p.do("Page.reload", nil)
	p.until("the tab has kept the token", `document.getElementById('gate').hidden && !document.getElementById('page').hidden`)
	if got := p.eval(`document.cookie + Object.keys(localStorage).join()`); got != "" {
		t.Errorf("the page keeps %q beyond the tab, want nothing", got)
	}
	var other []string
	for _, c := range p.complaints() {
		if !strings.Contains(c, "401") { // the browser's own words for a wrong token
			other = append(other, c)
		}
	}
	if len(other) > 0 {
		t.Errorf("the page complains: %q", other)
	}
}
