"""Where a data protection impact assessment, a supervisor and a research environment find what.

The tables say what a reader asks for, where this file speaks of it and what it leaves open. They
name the sources by topic; paragraph numbers of the opinion are given where public sources agree on
them.
"""

from typing import Any

DISCLAIMER = (
    "This file is evidence for whoever decides. It is no declaration that a model is anonymous, compliant or safe to release: purpose, "
    "legal basis, release and other measures are not known to the program that wrote it, and membership inference is one harm among "
    "several."
)
SOURCES = (
    {
        "name": "EDPB Opinion 28/2024",
        "title": "Opinion 28/2024 on certain data protection aspects related to the processing of personal data in the context of AI "
        "models, European Data Protection Board, adopted 17 December 2024",
        "where": "https://www.edpb.europa.eu/system/files/2024-12/edpb_opinion_202428_ai-models_en.pdf",
    },
    {"name": "GDPR", "title": "Regulation (EU) 2016/679, Article 35", "where": "https://eur-lex.europa.eu/eli/reg/2016/679/oj/eng"},
    {
        "name": "GRAIMATTER",
        "title": "Jefferson et al., GRAIMATTER Green Paper: Recommendations for disclosure control of trained Machine Learning models from "
        "Trusted Research Environments, 2022, arXiv:2211.01656",
        "where": "https://doi.org/10.5281/zenodo.7089491",
    },
    {
        "name": "SACRO-ML",
        "title": "Safe machine learning model release from Trusted Research Environments: The SACRO-ML package, arXiv:2212.01233",
        "where": "https://github.com/AI-SDC/SACRO-ML",
    },
    {
        "name": "EE-SDE",
        "title": "Eastern England Secure Data Environment, Researcher Model Disclosure Control SOP, version 1.0.0, 2026",
        "where": "https://zenodo.org/records/19255119",
    },
)
_DPIA = (
    (
        "Article 35(7)(a)",
        "systematic description of the processing and its purposes",
        ("data", "parameters"),
        "model, data, dates, parameters",
        "purpose, recipients, retention",
    ),
    ("Article 35(7)(b)", "necessity and proportionality", (), "nothing", "all of it: the controller's own assessment"),
    (
        "Article 35(7)(c)",
        "risks to the rights and freedoms of people",
        ("threat-model", "attacks", "results", "limits"),
        "how likely membership is inferred, for all, for the most exposed record and for groups",
        "how severe that would be for them, and every other risk",
    ),
    (
        "Article 35(7)(d)",
        "measures to address the risks",
        ("results",),
        "findings with a next step each, and what a new audit would show",
        "measures taken, and who answers for them",
    ),
)
_EDPB = (
    ("paragraph 34", "anonymity is assessed case by case", ("about",), "figures of this one model", "the assessment itself"),
    (
        "paragraph 43",
        "the likelihood of extraction, and of obtaining personal data by queries, is insignificant for any data subject",
        ("results",),
        "the most exposed record with its interval, and how the rates of all records are spread",
        "extraction and reconstruction; whether a likelihood is insignificant",
    ),
    (
        "by topic: means reasonably likely to be used",
        "what an attacker could do in practice",
        ("threat-model",),
        "what every attack of this file assumes",
        "who the attackers are here, and what they have",
    ),
    (
        "paragraph 46",
        "the context of release: public, restricted, internal",
        ("to-complete",),
        "nothing: it is not known here",
        "a field to fill in",
    ),
    (
        "by topic: design of the model",
        "sources, preparation and minimisation of data, training, measures on outputs",
        ("data", "parameters", "results"),
        "counts, copies, damping, overfitting findings",
        "sources, minimisation, filters on outputs",
    ),
    (
        "by topic: analysis of the model",
        "reviews and audits that support the design",
        ("results", "reproduction"),
        "coded findings and what makes them repeatable",
        "governance and code review",
    ),
    (
        "paragraph 55",
        "tests against known attacks: attribute and membership inference, exfiltration, regurgitation, inversion, reconstruction",
        ("attacks",),
        "each family, run or not run, with the reason",
        "families that were not run",
    ),
    (
        "paragraph 55",
        "scope, frequency, quantity and quality of the tests",
        ("data", "parameters", "limits"),
        "records, levels, intervals, seeds, dates, limits",
        "how often it is repeated",
    ),
    (
        "paragraph 58",
        "documentation: impact assessment, advice of the data protection officer, measures, threat models, residual risk",
        ("threat-model", "limits", "to-complete"),
        "threat model, results, limits, digests",
        "the assessment, the advice and the measures",
    ),
)
_EGRESS = (
    (
        "SACRO-ML, EE-SDE",
        "type of model and its settings",
        ("data", "parameters"),
        "family, part that was read, λ, every argument",
        "settings of the training that the audit was not given",
    ),
    ("EE-SDE", "purpose of the model and how it was trained", ("to-complete",), "nothing", "a field to fill in"),
    (
        "GRAIMATTER, SACRO-ML",
        "training and test data, kept apart and identified",
        ("data", "reproduction"),
        "counts, overlap, copies, digests and row order",
        "the data, which do not leave",
    ),
    (
        "GRAIMATTER, SACRO-ML",
        "simulated membership attacks under a worst case",
        ("threat-model", "attacks", "results"),
        "AUC and true-positive rate at low false-positive rates, with intervals",
        "attacks that were not run",
    ),
    ("SACRO-ML", "attribute inference", ("attacks",), "that it was not run", "a test by another tool"),
    (
        "SACRO-ML",
        "structural risk: overfitting, small leaves or clusters",
        ("results",),
        "findings on accuracy gap and on leaves of trees",
        "k-anonymity of the released model",
    ),
    (
        "GRAIMATTER",
        "risk for single people and for minorities",
        ("results",),
        "most exposed record, spread of rates, classes and groups",
        "harm to groups that were not given",
    ),
    (
        "house rules of the environment",
        "ids and small counts in what leaves",
        ("about", "results"),
        "whether ids are shown, and how many classes and groups have fewer than ten records",
        "the environment's own threshold",
    ),
    ("EE-SDE", "decision of the output checker", ("to-complete",), "nothing", "a field to fill in"),
)
TO_COMPLETE = (
    "Purpose of the model, and who decides on it",
    "Legal basis of training and of use",
    "Release: who can query the model, who can have its weights, for how long",
    "What an attacker in that setting could know about a person beforehand",
    "Harm if membership became known (for instance: a data set of patients with one disease)",
    "Other risks looked at, and by which tests (attribute inference, reconstruction, extraction)",
    "Measures taken, and whether this audit was made before or after them",
    "When the audit is repeated (new training, new data, new attacks)",
    "Advice of the data protection officer or of the output checker, with name and date",
    "Decision, with name and date",
)


def tables_for_readers() -> dict[str, Any]:
    """The three tables, their sources, and the fields that only people can fill in.

    They are the same for every audit; what they point to is not.
    """
    return {
        "dpia": [_row(*entry) for entry in _DPIA],
        "edpb_opinion_28_2024": [_row(*entry) for entry in _EDPB],
        "research_environment": [_row(*entry) for entry in _EGRESS],
        "sources": [dict(source) for source in SOURCES],
        "to_complete": list(TO_COMPLETE),
    }


def _row(source: str, asks: str, sections: tuple[str, ...], here: str, not_here: str) -> dict[str, Any]:
    return {"source": source, "asks": asks, "sections": list(sections), "here": here, "not_here": not_here}
