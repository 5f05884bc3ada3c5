// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"example.com/bothy/engine/api"
)

func healthcheckCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "asks the engine on this machine whether it is alive",
		Long: `healthcheck is for containers: it asks /healthz of the engine that listens at http.listen, prints what is wrong
and exits with 1 when it does not answer 200. With --ready it asks /readyz: whether the engine does its work. An outage
of the database makes an engine not ready and leaves it alive, so restart it for the first and not for the second.`,
		Example: `  engine healthcheck
  engine healthcheck --ready
  engine healthcheck --url http://127.0.0.1:9464/healthz`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	url := cmd.Flags().String("url", "", "the `URL` to ask; without it, that of http.listen in the configuration")
	ready := cmd.Flags().Bool("ready", false, "ask /readyz instead of /healthz")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *url == "" {
			cfg, err := readConfig(cmd, *path, env)
			if err != nil {
				return err
			}
			if cfg.HTTP.Listen == "" {
				return errors.New("http.listen is not set: give it an address, or --url")
			}
			page := "/healthz"
			if *ready {
				page = "/readyz"
			}
			if *url, err = api.URL(cfg.HTTP.Listen, page); err != nil {
				return err
			}
		} else if *ready {
			return usagef("--ready and --url exclude each other: write the page into the URL")
		}
		status, body, err := api.Ask(cmd.Context(), *url)
		if err != nil {
			return fmt.Errorf("the engine does not answer: %w", err)
		}
		if status != http.StatusOK {
			return fmt.Errorf("%s answers %d: %s", *url, status, strings.Join(strings.Fields(string(body)), " "))
		}
		fmt.Fprintln(cmd.OutOrStdout(), "ok")
		return nil
	}
	return cmd
}
