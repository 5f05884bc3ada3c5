// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// freeTries is how many wrong tokens in a row an address may send before it has to wait.
	freeTries = 3
	// firstPause is how long it then waits; each further wrong token doubles it, up to longestPause.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// forgets is how long after its last wrong token an address begins anew.
	forgets = 10 * time.Minute
	// mostAddresses bounds the memory. Addresses beyond share one count.
	mostAddresses = 1024
)

// guard decides who may read the facts.
type guard struct {
	access Access
	token  *[sha256.Size]byte // nil when there is none

	mu    sync.Mutex
	tries map[netip.Prefix]*try
}

// try is what an address did.
type try struct {
	wrong int
	last  time.Time
	until time.Time // no token is looked at before
}

func newGuard(access Access, token string) *guard {
	g := &guard{access: access, tries: map[netip.Prefix]*try{}}
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		g.token = &sum
	}
	return g
}

// NoToken is the answer where the configuration has no token.
const NoToken = "the status page needs http.admin_token in consumers.yaml"

// admits decides whether a request is answered at all. The page itself shows nothing before the token is typed.
func (g *guard) admits(r *http.Request) (status int, why string) {
	switch {
	case g.access == ByToken && g.token == nil:
		return http.StatusNotFound, NoToken
	case g.access == ByToken:
		return 0, ""
	case g.access == Local && local(r.Host):
		return 0, ""
	default:
		// A page of somebody else's can have its name point here; the name is then in the request.
		return http.StatusMisdirectedRequest, notHere
	}
}

// notHere is the answer to a request that was not meant for this machine.
const notHere = "this page is for this machine: open it as 127.0.0.1, [::1] or localhost"

// ForThisMachine lets requests in that were meant for this machine and that no page of another origin sent: what is
// behind it asks nobody who they are.
func ForThisMachine(next http.Handler) http.Handler {
	guarded := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, notHere)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// local reports whether a Host header names this machine in a way that no name service decides.
func local(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// knows decides whether a request may read the facts. A token is compared in the same time whatever it is, and not
// at all while its address has to wait.
func (g *guard) knows(r *http.Request) (status int, after time.Duration, why string) {
	if g.access == Local {
		return 0, 0, ""
	}
	from, now := origin(r.RemoteAddr), time.Now()
	if wait := g.pause(from, now); wait > 0 {
		return http.StatusTooManyRequests, wait, "too many wrong tokens: wait"
	}
	scheme, sent, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sent = strings.TrimSpace(sent)
	if !strings.EqualFold(scheme, "Bearer") || sent == "" {
		return http.StatusUnauthorized, 0, "send the token: Authorization: Bearer TOKEN"
	}
	sum := sha256.Sum256([]byte(sent))
	if g.token == nil || subtle.ConstantTimeCompare(sum[:], g.token[:]) != 1 {
		g.wrong(from, now)
		return http.StatusUnauthorized, 0, "the token is not that of http.admin_token"
	}
	g.right(from)
	return 0, 0, ""
}

// origin is whose tries are counted together: an address, or the network that one IPv6 customer has.
func origin(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := at.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(ip, bits).Masked()
}

func (g *guard) pause(from netip.Prefix, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tries[from]
	if t == nil && len(g.tries) >= mostAddresses {
		t = g.tries[netip.Prefix{}]
	}
	if t == nil {
		return 0
	}
	return t.until.Sub(now)
}

func (g *guard) wrong(from netip.Prefix, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for address, t := range g.tries {
		if now.Sub(t.last) >= forgets {
			delete(g.tries, address)
		}
	}
	if g.tries[from] == nil {
		if len(g.tries) >= mostAddresses {
			from = netip.Prefix{}
		}
		if g.tries[from] == nil {
			g.tries[from] = &try{}
		}
	}
	t := g.tries[from]
	t.wrong, t.last = t.wrong+1, now
	if over := t.wrong - freeTries; over >= 0 {
		t.until = now.Add(min(firstPause<<min(over, 10), longestPause))
	}
}

func (g *guard) right(from netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.tries, from)
}

// seconds is a pause as Retry-After wants it.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
