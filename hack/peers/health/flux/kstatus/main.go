// Command kstatus prints, for each object on its input, its status in Flux and in other tools that use kstatus without
// configuration for its kind.
package main

import (
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"specbench.dev/peers/health/flux/lines"
)

func main() {
	if err := lines.Each(os.Stdin, os.Stdout, evaluate); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func evaluate(object *unstructured.Unstructured) (lines.Answer, error) {
	result, err := status.Compute(object)
	if err != nil {
		return lines.Answer{}, err
	}
	return lines.Answer{Status: result.Status.String(), Message: result.Message}, nil
}
