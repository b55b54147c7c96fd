// Command healthchecks prints, for each object on its input, its health in Flux with the health check expressions of the
// Kustomization in the file that is its argument.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"specbench.dev/peers/health/flux/lines"
)

// kustomization is the part of Flux's Kustomization that is read here, with Flux's own type for the expressions.
type kustomization struct {
	Spec struct {
		HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
	} `json:"spec"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: healthchecks KUSTOMIZATION.yaml < objects")
	}
	evaluators, err := read(arguments[0])
	if err != nil {
		return err
	}
	return lines.Each(os.Stdin, os.Stdout, func(object *unstructured.Unstructured) (lines.Answer, error) {
		evaluator, ok := evaluators[object.GetAPIVersion()+"/"+object.GetKind()]
		if !ok {
			return lines.Answer{}, fmt.Errorf("no expressions for %s %s", object.GetAPIVersion(), object.GetKind())
		}
		result, err := evaluator.Evaluate(context.Background(), object)
		if err != nil {
			return lines.Answer{}, err
		}
		return lines.Answer{Status: result.Status.String(), Message: result.Message}, nil
	})
}

func read(file string) (map[string]*cel.StatusEvaluator, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var given kustomization
	if err := yaml.Unmarshal(text, &given); err != nil {
		return nil, err
	}
	evaluators := map[string]*cel.StatusEvaluator{}
	for _, check := range given.Spec.HealthCheckExprs {
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		if err != nil {
			return nil, err
		}
		evaluators[check.APIVersion+"/"+check.Kind] = evaluator
	}
	return evaluators, nil
}
