// Command build builds the servers that tests of buckets need, and prints where they are. It is run by make test, so that no test waits for them.
package main

import (
	"fmt"
	"os"

	"lcache/source/s3test"
)

func main() {
	for _, name := range []string{"versitygw", "toxiproxy-server"} {
		path, err := s3test.Build(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "build:", err)
			os.Exit(1)
		}
		fmt.Println(path)
	}
}
