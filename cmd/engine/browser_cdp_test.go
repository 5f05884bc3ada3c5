// SPDX-License-Identifier: Apache-2.0

//go:build browser && unix

package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// browserNames are what Chromium is called, the first that is found is taken.
var browserNames = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// browser is a headless Chromium of the test's own. It is driven by the DevTools protocol over a pipe, so nothing
// but the test can reach it.
type browser struct {
	t   *testing.T
	to  *os.File
	mu  sync.Mutex
	id  int
	ask map[int]chan reply
	on  map[string]*tab // by session
	end error           // why the pipe ended
}

// reply is a message of the browser's: the answer to a command, or an event.
type reply struct {
	ID        int             `json:"id"`
	SessionID string          `json:"sessionId"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser starts a browser that ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range browserNames {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatalf("there is no browser: none of %s is on PATH; .ci/browser installs one on Debian", strings.Join(browserNames, ", "))
	}
	commands, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "bothy-browser-") //nolint:usetesting // the browser's last process still writes there when the first has ended
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en", "--remote-debugging-pipe",
		"--user-data-dir="+home, "about:blank")
	cmd.ExtraFiles = []*os.File{commands, answers}
	said := &lastWords{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	_ = errors.Join(commands.Close(), answers.Close()) // they are the browser's now
	b := &browser{t: t, to: to, ask: map[int]chan reply{}, on: map[string]*tab{}}
	read := make(chan struct{})
	go func() { defer close(read); b.read(bufio.NewReader(from)) }()
	t.Cleanup(func() {
		_, _ = b.send("", "Browser.close", nil) // it may be gone already
		stop := time.AfterFunc(10*time.Second, cancel)
		_ = cmd.Wait() // it was told to end, or killed
		stop.Stop()
		cancel()
		_ = errors.Join(to.Close(), from.Close())
		<-read
		eventually(t, "the browser's last process has let its folder go", func() bool { return os.RemoveAll(home) == nil })
		if t.Failed() {
			t.Logf("the browser said:\n%s", said)
		}
	})
	return b
}

// read hands on what the browser says until its pipe ends.
func (b *browser) read(from *bufio.Reader) {
	for {
		text, err := from.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.end = err
			for _, waits := range b.ask {
				close(waits)
			}
			b.ask = map[int]chan reply{}
			b.mu.Unlock()
			return
		}
		var r reply
		if err := json.Unmarshal(text[:len(text)-1], &r); err != nil {
			continue
		}
		b.mu.Lock()
		if waits := b.ask[r.ID]; waits != nil {
			waits <- r
			delete(b.ask, r.ID)
		} else if on := b.on[r.SessionID]; on != nil {
			on.note(r)
		}
		b.mu.Unlock()
	}
}

// send sends a command and waits for its answer.
func (b *browser) send(session, method string, params any) (json.RawMessage, error) {
	waits := make(chan reply, 1)
	b.mu.Lock()
	if b.end != nil {
		b.mu.Unlock()
		return nil, b.end
	}
	b.id++
	message := map[string]any{"id": b.id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if session != "" {
		message["sessionId"] = session
	}
	text, err := json.Marshal(message)
	if err == nil {
		b.ask[b.id] = waits
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case r, ok := <-waits:
		switch {
		case !ok:
			return nil, errors.New("the browser ended")
		case r.Error != nil:
			return nil, errors.New(r.Error.Message)
		}
		return r.Result, nil
	case <-limit.C:
		return nil, errors.New("no answer within a minute")
	}
}

// tab is one page of the browser.
type tab struct {
	*browser

	session string
	trouble []string // what the page complained of: errors of the script, refused by the policy, requests that failed
}

// open opens a page and waits until it is loaded.
func (b *browser) open(url string) *tab {
	b.t.Helper()
	var target struct{ TargetID, BrowserContextID string }
	b.into(&target, "", "Target.createBrowserContext", nil)
	b.into(&target, "", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": target.BrowserContextID})
	var attached struct{ SessionID string }
	b.into(&attached, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true})
	p := &tab{browser: b, session: attached.SessionID}
	b.mu.Lock()
	b.on[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.do(domain+".enable", nil)
	}
	p.do("Page.navigate", map[string]any{"url": url})
	p.until("the page is loaded", `document.readyState === 'complete' && location.href !== 'about:blank'`)
	return p
}

// note keeps what a page complains of.
func (p *tab) note(r reply) {
	var said struct {
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Type string
	}
	if json.Unmarshal(r.Params, &said) != nil {
		return
	}
	switch {
	case r.Method == "Log.entryAdded" && said.Entry.Level == "error":
		p.trouble = append(p.trouble, said.Entry.Text+" "+said.Entry.URL)
	case r.Method == "Runtime.exceptionThrown":
		p.trouble = append(p.trouble, said.ExceptionDetails.Text+" "+said.ExceptionDetails.Exception.Description)
	}
}

// complaints are what the page complained of so far.
func (p *tab) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.trouble...)
}

func (b *browser) into(into any, session, method string, params any) {
	b.t.Helper()
	result, err := b.send(session, method, params)
	if err == nil && into != nil {
		err = json.Unmarshal(result, into)
	}
	if err != nil {
		b.t.Fatalf("browser: %s: %v", method, err)
	}
}

func (p *tab) do(method string, params any) {
	p.t.Helper()
	p.into(nil, p.session, method, params)
}

// eval is the value of an expression in the page, as a text.
func (p *tab) eval(expression string) string {
	p.t.Helper()
	var got struct {
		Result struct {
			Value any
		}
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	p.into(&got, p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if got.ExceptionDetails != nil {
		p.t.Fatalf("in the page, %s: %s", expression, got.ExceptionDetails.Exception.Description)
	}
	if got.Result.Value == nil {
		return ""
	}
	return fmt.Sprint(got.Result.Value)
}

// until waits until an expression is true in the page.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	// while a page is loaded, a part of it can be missing
	for p.eval("(() => { try { return Boolean("+expression+") } catch { return false } })()") != "true" {
		select {
		case <-tick.C:
		case <-limit.C:
			p.t.Fatalf("waited a minute in vain until %s\nthe page complains of %q and reads:\n%s", what, p.complaints(), p.eval("document.body.innerText"))
		}
	}
}

// write types a text into the element that has the focus.
func (p *tab) write(text string) {
	p.t.Helper()
	p.do("Input.insertText", map[string]any{"text": text})
}

// key presses a key.
func (p *tab) key(name, text string, code int) {
	p.t.Helper()
	for _, how := range []string{"keyDown", "keyUp"} {
		p.do("Input.dispatchKeyEvent", map[string]any{"type": how, "key": name, "code": name, "text": text, "windowsVirtualKeyCode": code})
	}
}

// screen says what kind of screen the page is on.
func (p *tab) screen(width, height int, scheme string) {
	p.t.Helper()
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}})
}

// picture writes what the page looks like into a file, the whole page when that is asked for.
func (p *tab) picture(file string, whole bool) {
	p.t.Helper()
	var shot struct{ Data string }
	p.into(&shot, p.session, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole, "optimizeForSpeed": false})
	image, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(file, image, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// roles are the roles and names that a screen reader is told, one "role name" for each element that it would stop at.
func (p *tab) roles() []string {
	p.t.Helper()
	type word struct{ Value any }
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name word
		}
	}
	p.do("Accessibility.enable", nil)
	p.into(&tree, p.session, "Accessibility.getFullAXTree", nil)
	var all []string
	for _, n := range tree.Nodes {
		if !n.Ignored {
			all = append(all, strings.TrimSpace(fmt.Sprint(n.Role.Value)+" "+fmt.Sprint(n.Name.Value)))
		}
	}
	return all
}
