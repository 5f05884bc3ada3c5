// SPDX-License-Identifier: Apache-2.0

// Command engine turns a PostgreSQL event log into River jobs. It owns flags, wiring, printing and exit
// codes; what is done and said about a database, a configuration or an event belongs to the rooms below.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr))
}
