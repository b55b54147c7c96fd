// Command argo prints, for each object on its input (one JSON object a line), its health in Argo CD, where the ConfigMap
// in the file that is its argument is Argo CD's argocd-cm.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"github.com/argoproj/gitops-engine/pkg/health"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

const (
	namespace = "argocd"
	// longest is the most bytes of one object: etcd takes no larger ones.
	longest = 4 << 20
)

type answer struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: argo ARGOCD-CM.yaml < objects")
	}
	overrides, err := read(arguments[0])
	if err != nil {
		return err
	}
	answers := json.NewEncoder(os.Stdout)
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, longest)
	for scanner.Scan() {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(scanner.Bytes()); err != nil {
			return err
		}
		result, err := health.GetResourceHealth(object, overrides)
		if err != nil {
			return err
		}
		if result == nil {
			return fmt.Errorf("Argo CD has no health check for %s", object.GetKind())
		}
		if err := answers.Encode(answer{string(result.Status), result.Message}); err != nil {
			return err
		}
	}
	return scanner.Err()
}

// read has Argo CD read its own settings from the ConfigMap: which keys count, and for which kinds, is its business.
func read(file string) (lua.ResourceHealthOverrides, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return nil, err
	}
	config.Namespace = namespace
	secret := &corev1.Secret{}
	secret.Name, secret.Namespace, secret.Labels = "argocd-secret", namespace, config.Labels
	manager := settings.NewSettingsManager(context.Background(), fake.NewClientset(&config, secret), namespace)
	overrides, err := manager.GetResourceOverrides()
	return lua.ResourceHealthOverrides(overrides), err
}
