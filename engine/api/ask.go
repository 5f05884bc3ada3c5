// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// askLimit bounds a question to another process, connecting included.
const askLimit = 3 * time.Second

// answerBytes bounds what is read of an answer.
const answerBytes = 1 << 20

// URL is where a process of this machine that listens on an address serves a page. An address for every interface
// is asked on the loopback one.
func URL(listen, page string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("http.listen is %q: %w", listen, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port) + page, nil
}

// Ask gets a page. It follows no redirect and uses no proxy: what it asks is near.
func Ask(ctx context.Context, url string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", url, err)
	}
	client := http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, answerBytes))
	return response.StatusCode, body, err
}

// AskReadiness gets the answer of /readyz.
func AskReadiness(ctx context.Context, url string) (Readiness, error) {
	var r Readiness
	_, body, err := Ask(ctx, url)
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	return r, err
}
